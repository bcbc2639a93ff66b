#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures both collectives beside Open MPI over ranks, buffers, types and sizes, and prints a Markdown table.
#   perf/bench.sh [--quick] [BUILD_DIR] [OUTPUT_DIR]
# --quick: 8 ranks, windows, 64K to 16M. VCOLL_BENCH_PEERS: the --peer list. The JSON files stay in OUTPUT_DIR.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
quick=0
if [[ ${1:-} == --quick ]]; then
  quick=1
  shift
fi
build=${1:-$here/../build}
out=${2:-$build/bench-$(date +%Y%m%d-%H%M%S)}
peers=${VCOLL_BENCH_PEERS:-mpi-v,per-owner}
mkdir -p "$out"

mpirun=$(command -v mpirun.openmpi || command -v mpirun) || {
  echo "bench: no mpirun; install Open MPI" >&2
  exit 1
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Without these the peers fault in temporary memory on every call and look up to 70 times slower than they are.
export GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592:glibc.malloc.top_pad=67108864

# launch RANKS [mpirun options] -- program: bound where every rank has a core, else yielding.
launch() {
  local ranks=$1 flags
  shift
  if ((ranks <= $(nproc))); then
    flags=(--bind-to core --mca mpi_yield_when_idle 0)
  else
    flags=(--oversubscribe --bind-to none --mca mpi_yield_when_idle 1)
  fi
  "$mpirun" "${flags[@]}" -np "$ranks" "$@"
}

failed=0
# cell LABEL RANKS PROGRAM "MPIRUN OPTIONS" PROGRAM OPTIONS...: small and large sizes, with as many iterations as each needs.
cell() {
  local label=$1 ranks=$2 program=$3 mpi=$4 range
  shift 4
  local ranges=("-b 16K -e 1M -f 4 -n 60 -w 5" "-b 4M -e 256M -f 4 -n 9 -w 1")
  ((quick)) && ranges=("-b 64K -e 1M -f 4 -n 30 -w 5" "-b 4M -e 16M -f 4 -n 9 -w 1")
  for range in "${ranges[@]}"; do
    echo "== $label: $program $range $*" >&2
    # shellcheck disable=SC2086  # lists of options
    launch "$ranks" $mpi "$build/bin/$program" $range --peer "$peers" -J "$out/$label.json" "$@" >"$out/last.txt" || {
      echo "bench: $label failed; its output:" >&2
      cat "$out/last.txt" >&2
      failed=1
    }
  done
}

# both LABEL RANKS "MPIRUN OPTIONS" OPTIONS...: AllGatherV moves bytes, so one type is enough; ReduceScatterV has two.
both() {
  local label=$1 ranks=$2 mpi=$3
  shift 3
  cell "$label" "$ranks" all_gather_v_perf "$mpi" -d float "$@"
  for type in float bfloat16; do
    cell "$label" "$ranks" reduce_scatter_v_perf "$mpi" -d "$type" "$@"
  done
}

if ((quick)); then
  both "8 ranks, window" 8 "" --buffers window
else
  for buffers in window private; do
    for ranks in 2 4 8; do
      both "$ranks ranks, $buffers" "$ranks" "" --buffers "$buffers"
    done
    both "8 ranks, every 4th, $buffers" 8 "" --buffers "$buffers" --dist every:4
  done
  # vcoll talks TCP between the pretended nodes; MPI has one machine and can use either everywhere.
  both "2 nodes x 4, MPI over TCP" 8 "--mca btl tcp,self" --buffers window --nodes 2
  both "2 nodes x 4, MPI over shared memory" 8 "--mca btl vader,self" --buffers window --nodes 2
fi

python3 "$here/table.py" "$out"
exit "$failed"
