#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compiles_test.sh PTX RESOURCES [gin]: each kernel holds the instructions it is meant to hold and no others of the kind, and
# ptxas spilled nothing. This says that the kernels compile as intended, not that they work.
set -u
ptx=$1 resources=$2 gin=${3:-}
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

[ -s "$ptx" ] || { echo "no PTX at $ptx: build the target vcoll_cuda_ptx"; exit 1; }
[ -s "$resources" ] || { echo "no output of ptxas at $resources"; exit 1; }
body=$(mktemp)
trap 'rm -f "$body"' EXIT

# Mangled names end a name with E or begin the next with a digit: the number before it is its length.
symbolOf() { echo "${#1}$1"; }
has() { grep -q -F -e "$2" "$body" || fail "$1: no $2"; }
hasNot() { if grep -q -F -e "$2" "$body"; then fail "$1: holds $2"; fi; }

check() {
  kernel=$1 collective=$2 net=$3 maxRegisters=$4 maxStack=$5
  symbol=$(symbolOf "$kernel")
  awk -v symbol="$symbol" '/\.entry / { inside = index($0, symbol) > 0 } inside' "$ptx" > "$body"
  [ -s "$body" ] || { fail "$kernel is not in the PTX"; return; }

  # A barrier of the whole warp would be wrong: the leader is away from its warp.
  has "$kernel" 'barrier.sync'
  hasNot "$kernel" 'bar.sync'
  hasNot "$kernel" 'bar.warp.sync'
  has "$kernel" 'ld.acquire.sys'
  has "$kernel" 'fence.acq_rel.sys'
  if [ "$collective" = publish ]; then
    has "$kernel" 'st.release.sys.global.u64'
    hasNot "$kernel" 'multimem'
  elif [ "$collective" = gather ]; then
    has "$kernel" 'multimem.st.relaxed.sys.global.v4.f32'
    hasNot "$kernel" 'multimem.ld_reduce'
  else
    has "$kernel" 'multimem.ld_reduce.relaxed.sys.global.add.v4.f32'
    has "$kernel" 'multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2'
    has "$kernel" 'multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2'
    hasNot "$kernel" 'multimem.st'
  fi
  if [ "$net" = gin ]; then
    has "$kernel" 'st.mmio.relaxed.sys'  # a doorbell
  else
    has "$kernel" 'red.release.sys.global.add.u64'
    hasNot "$kernel" '.local'
  fi

  set -- $(awk -v symbol="$symbol" '
    /Compiling entry function/ { inside = index($0, symbol) > 0 }
    inside && /bytes stack frame/ { stack = $1; stores = $5; loads = $9 }
    inside && / registers/ { for (i = 2; i <= NF; ++i) if ($i ~ /^registers/) registers = $(i - 1)
                             for (i = 3; i <= NF; ++i) if ($i ~ /^smem/) shared = $(i - 2) }
    END { print registers, stack, stores, loads, shared }' "$resources")
  [ $# -eq 5 ] || { fail "$kernel: ptxas said nothing that can be read"; return; }
  printf '%-28s %4s registers  %3s B stack  %s/%s B spilled  %s B shared\n' "$kernel" "$1" "$2" "$3" "$4" "$5"
  [ "$3" -eq 0 ] && [ "$4" -eq 0 ] || fail "$kernel: spills"
  [ "$2" -le "$maxStack" ] || fail "$kernel: $2 bytes of stack, more than $maxStack"
  [ "$1" -le "$maxRegisters" ] || fail "$kernel: $1 registers, more than $maxRegisters"
}

check allGatherVMemoryKernel gather memory 128 0
check reduceScatterVMemoryKernel reduce memory 192 0
check publishMemoryKernel publish memory 128 0
if [ "$gin" = gin ]; then
  # NCCL's put builds its descriptor for the proxy on the stack.
  check allGatherVKernel gather gin 128 24
  check reduceScatterVKernel reduce gin 192 24
  check publishKernel publish gin 128 24
fi
[ "$failures" -eq 0 ]
