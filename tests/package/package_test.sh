#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Steps of the package tests; CMakeLists.txt here sets the environment. usage: package_test.sh STEP
set -euo pipefail

work=$BUILD_DIR/package-test
prefix=$work/prefix
here=$SOURCE_DIR/tests/package
lib=$prefix/$LIBDIR/libvcoll.so
strict=(-pedantic -Wall -Wextra -Wshadow -Werror)
c99=("$CC" -std=c99 -Wstrict-prototypes "${strict[@]}")
cxx17=("$CXX" -std=c++17 "${strict[@]}")
export PKG_CONFIG_PATH=$prefix/$LIBDIR/pkgconfig

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# The example as three processes, started as torchrun would.
run_example() {
  local program=$1 port rank pids=() expected="0 10 11 20 21 22"
  port=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  for rank in 0 1 2; do
    env RANK=$rank WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT="$port" VCOLL_TIMEOUT_MS=30000 \
      "$program" >"$program.$rank.out" 2>&1 &
    pids+=($!)
  done
  for rank in 0 1 2; do
    wait "${pids[$rank]}" || fail "rank $rank of $program: $(cat "$program.$rank.out")"
    [[ $(cat "$program.$rank.out") == "rank $rank of 3: $expected" ]] ||
      fail "rank $rank of $program printed: $(cat "$program.$rank.out")"
  done
}

# Installed in one place and moved to another: nothing may remember the first.
step_install() {
  rm -rf "$work"
  mkdir -p "$work"
  "$CMAKE" --install "$BUILD_DIR" --prefix "$work/first" >"$work/install.log"
  mv "$work/first" "$prefix"
  local file
  for file in include/vcoll/vcoll.h include/vcoll/vcoll.hpp bin/vcoll-info share/doc/vcoll/LICENSE \
    "$LIBDIR/libvcoll.so.$VERSION" "$LIBDIR/pkgconfig/vcoll.pc" "$LIBDIR/cmake/vcoll/vcollConfig.cmake"; do
    [[ -f $prefix/$file ]] || fail "$file was not installed"
  done
  ! grep -rIlF -e "$SOURCE_DIR" -e "$work/first" "$prefix" || fail "the files above name the source or the first prefix"
  for file in "$prefix"/bin/*; do
    ! ldd "$file" | grep 'not found' || fail "$file misses the above"
  done
  [[ $("$prefix/bin/vcoll-info" --version) == "$VERSION" ]] || fail "vcoll-info --version"
}

step_symbols() {
  local names needed declared name
  # The version node (VCOLL_0) is listed as an absolute symbol.
  names=$(nm -D --defined-only "$lib" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | sort -u)
  grep -qx vcollAllGatherV <<<"$names" || fail "vcollAllGatherV is not exported"
  ! grep -v '^vcoll[A-Z]' <<<"$names" || fail "exported symbols above are not ours to export"
  # Every function of the header is exported and nothing else.
  declared=$(grep -v '^ \*' "$prefix/include/vcoll/vcoll.h" | tr '\n' ' ' |
    grep -oE 'VCOLL_API [^;()]*\(' | grep -oE 'vcoll[A-Za-z]+\($' | tr -d '(' | sort -u)
  diff <(echo "$declared") <(echo "$names") || fail "header (<) and exported functions (>) differ"
  readelf -d "$lib" | grep -q "SONAME.*\[libvcoll.so.${VERSION%%.*}\]" || fail "soname: $(readelf -d "$lib" | grep SONAME)"
  needed=$(ldd "$lib" | awk '{ print $1 }' | sed 's|.*/||')
  for name in $needed; do
    case $name in
      libc.so.* | libm.so.* | libstdc++.so.* | libgcc_s.so.* | ld-linux* | linux-vdso.so.*) ;;
      *) fail "libvcoll.so needs $name" ;;
    esac
  done
}

step_headers() {
  local flags=(-I "$prefix/include" -fsyntax-only)
  echo '#include <vcoll/vcoll.h>' >"$work/c.c"
  echo '#include <vcoll/vcoll.hpp>' >"$work/cxx.cc"
  cp "$work/c.c" "$work/c.cc"
  "${c99[@]}" -Wconversion "${flags[@]}" "$work/c.c"
  "${cxx17[@]}" -Wconversion "${flags[@]}" "$work/c.cc"
  "${cxx17[@]}" -Wconversion "${flags[@]}" "$work/cxx.cc"
  # No types of MPI or CUDA, no headers but the two of C.
  ! grep '#include' "$prefix/include/vcoll/vcoll.h" | grep -vE '<std(def|int)\.h>' || fail "vcoll.h includes the above"
}

step_cmake() {
  rm -rf "$work/cmake" && mkdir "$work/cmake"
  cp "$here/consumer.cmake" "$work/cmake/CMakeLists.txt"
  cp "$SOURCE_DIR/examples/allgatherv.c" "$work/cmake/"
  "$CMAKE" -G "$CMAKE_GENERATOR" -S "$work/cmake" -B "$work/cmake/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" \
    -DWANT_VERSION="${VERSION%.*}" >"$work/cmake/log"
  "$CMAKE" --build "$work/cmake/build" >>"$work/cmake/log"
  run_example "$work/cmake/build/allgatherv"
  # A version that is not there must be refused.
  ! "$CMAKE" -G "$CMAKE_GENERATOR" -S "$work/cmake" -B "$work/cmake/other" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$CC" \
    -DWANT_VERSION=99.0 >"$work/cmake/other.log" 2>&1 || fail "version 99.0 was found"
}

step_pkgconfig() {
  local flags
  [[ $(pkg-config --modversion vcoll) == "$VERSION" ]] || fail "pkg-config --modversion"
  read -ra flags <<<"$(pkg-config --cflags --libs vcoll)"
  "${c99[@]}" -o "$work/allgatherv" "$SOURCE_DIR/examples/allgatherv.c" "${flags[@]}"
  LD_LIBRARY_PATH=$prefix/$LIBDIR run_example "$work/allgatherv"
}

step_dlopen() {
  "${c99[@]}" -D_DEFAULT_SOURCE -I "$prefix/include" -o "$work/dlopen" "$here/dlopen_table.c" -ldl
  "$work/dlopen" "$(readlink -f "$lib")"
}

step_hpp() {
  "${cxx17[@]}" -I "$prefix/include" -o "$work/hpp" "$here/hpp_use.cc" -L "$prefix/$LIBDIR" -lvcoll -pthread
  LD_LIBRARY_PATH=$prefix/$LIBDIR "$work/hpp"
}

"step_$1"
