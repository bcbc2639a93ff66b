#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# perf_test.sh STEP PROGRAM [MPIRUN [RANKS]]: what users of the perf programs see that no unit test does.
set -eu
step=$1
program=$2
mpirun=${3:-}
ranks=${4:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
  echo "$step: $1" >&2
  for file in "$work"/*; do echo "--- $file" >&2 && head -c 2000 "$file" >&2; done
  exit 1
}

# A wrong argument is one line from rank 0 and exit code 2 of every rank; nothing is measured before it is found.
refused() {
  words=$1
  shift
  # shellcheck disable=SC2016  # expanded by the ranks
  "$mpirun" --oversubscribe -np 4 sh -c 'code=0; "$@" || code=$?; echo $code >"$0/code$OMPI_COMM_WORLD_RANK"' "$work" \
    "$program" -b 1K -e 1K "$@" >"$work/out" 2>"$work/err" || fail "mpirun failed with $*"
  for rank in 0 1 2 3; do
    [ "$(cat "$work/code$rank")" = 2 ] || fail "rank $rank ended with $(cat "$work/code$rank") after $*"
  done
  [ "$(wc -l <"$work/err")" = 1 ] || fail "not one line on stderr for $*"
  grep -qF -e "$words" "$work/err" || fail "stderr does not say '$words'"
  [ ! -s "$work/out" ] || fail "something was measured with $*"
}

arguments() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  refused "--dist: owner 99 of 'onehot:99' is not a rank of 4" --dist onehot:99
  refused "--dist: cannot read file 'missing'" --dist file:missing
  refused "'every:0'" --dist every:0
  refused "--dist: no model 'gpt'" --dist model:gpt
  refused "-J: cannot create '$work/none/x.json'" -J "$work/none/x.json"
  refused "--nodes: 5 nodes" --nodes 5
  refused "--iters" -n many
  echo "1 2 3" >"$work/weights"
  refused "holds 3 numbers but there are 4 ranks" --dist "file:$work/weights"
}

# Without MPI, ranks of a launcher meet by its variables.
where() { :; }  # what starts a rank elsewhere
launched() {
  ranks=$1
  shift
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  rank=$ranks
  pids=
  while [ "$rank" -gt 0 ]; do
    rank=$((rank - 1))
    # shellcheck disable=SC2086  # the words of a command
    RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=${address:-127.0.0.1} MASTER_PORT=$port \
      $(where "$rank") "$program" "$@" >"$work/out$rank" 2>"$work/err$rank" &
    pids="$pids $!"
  done
  codes=
  for pid in $pids; do
    code=0
    wait "$pid" || code=$?
    codes="$codes $code"
  done
}

nompi() {
  for ranks in 2 4; do
    json=$work/$ranks.json
    launched "$ranks" -b 64K -e 1M -f 4 -n 3 -c 2 --nodes 2 -J "$json"
    for code in $codes; do [ "$code" = 0 ] || fail "exit codes$codes of $ranks processes"; done
    python3 - "$json" "$ranks" <<'END' || fail "the JSON of $ranks processes is wrong"
import json, sys
report = json.load(open(sys.argv[1], encoding="utf-8"))
ranks = int(sys.argv[2])
config = report["config"]
assert (config["mpi"], config["processes"], config["ranks"], config["nodes"]) == ("false", ranks, ranks, 2), config
assert [device["rank"] for device in config["devices"]] == list(range(ranks))
assert len({device["pid"] for device in config["devices"]}) == ranks
assert [result["size"] for result in report["results"]] == [65536, 262144, 1048576], report["results"]
for result in report["results"]:
    for block in ("out_of_place", "in_place"):
        assert result[block]["nwrong"] == 0 and result[block]["time"] > 0, result
    assert result["peers"] == {} and result["limit_fraction"] > 0, result
assert report["out_of_bounds"] == {"count": 0, "okay": "true"} and report["errors"] == "false"
END
    grep -q "Out of bounds values : 0 OK" "$work/out0" || fail "rank 0 printed no footer"
    for rank in 1 $((ranks - 1)); do [ ! -s "$work/out$rank" ] || fail "rank $rank printed a table too"; done
  done
  launched 2 --dist onehot:2
  [ "$codes" = " 2 2" ] || fail "exit codes$codes for a wrong argument"
  grep -q "owner 2 of 'onehot:2'" "$work/err0" || fail "rank 0 does not say what is wrong"
  [ ! -s "$work/err1" ] || fail "rank 1 complained too"
  launched 2 --peer all
  [ "$codes" = " 6 6" ] || fail "exit codes$codes for peers without MPI"
}

# Ranks in containers: what they share is found by trying, not by names or process numbers, which are the same here.
apart="unshare --mount --pid --uts --fork setarch -R"
expectNodes() {
  for code in $codes; do [ "$code" = 0 ] || fail "exit codes$codes"; done
  python3 - "$json" "$1" <<'END' || fail "wrong data, or not $1 node(s)"
import json, sys
report = json.load(open(sys.argv[1], encoding="utf-8"))
assert report["config"]["nodes"] == int(sys.argv[2]), report["config"]
assert report["out_of_bounds"] == {"count": 0, "okay": "true"}, report["out_of_bounds"]
END
}
namespaces() {
  if ! unshare --net --mount --pid --uts --fork setarch -R ip link add v0 type veth peer name v1 2>"$work/err"; then
    echo "skipped, this needs root, unshare, setarch and ip: $(cat "$work/err")"
    exit 77
  fi
  # The same process number and the same addresses in both: a rank must not take itself for the other.
  where() { echo "$apart"; }
  for direct in 0 64G; do
    json=$work/one.$direct.json
    VCOLL_DIRECT_BYTES=$direct VCOLL_TIMEOUT_MS=15000 launched 2 -b 64K -e 1M -f 4 -n 3 -J "$json"
    expectNodes 1
  done
  # A network of their own each, joined by a cable: no Unix socket reaches the other, so there are two nodes.
  holders=
  for _ in 0 1; do
    unshare --net sleep 100 &
    holders="$holders${holders:+ }$!"
  done
  trap 'kill $holders; rm -rf "$work"' EXIT
  for holder in $holders; do
    until [ "$(readlink "/proc/$holder/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
  done
  nsenter --net="/proc/${holders% *}/ns/net" ip link add eth0 type veth peer name eth0 netns "${holders#* }"
  number=1
  for holder in $holders; do
    nsenter --net="/proc/$holder/ns/net" ip addr add "10.231.0.$number/24" dev eth0
    nsenter --net="/proc/$holder/ns/net" ip link set eth0 up
    nsenter --net="/proc/$holder/ns/net" ip link set lo up
    number=$((number + 1))
  done
  for holder in $holders; do
    until nsenter --net="/proc/$holder/ns/net" ip link show eth0 | grep -q "state UP"; do sleep 0.05; done
  done
  # shellcheck disable=SC2317  # launched calls it
  where() {
    holder=${holders% *}
    [ "$1" = 0 ] || holder=${holders#* }
    echo "nsenter --net=/proc/$holder/ns/net $apart"
  }
  address=10.231.0.1
  for buffers in private window; do
    json=$work/two.$buffers.json
    VCOLL_TIMEOUT_MS=15000 launched 2 -b 64K -e 1M -f 4 -n 3 --buffers $buffers -J "$json"
    expectNodes 2
  done
}

# All models in both modes beside the peers, and with two copies and checksums; the JSON holds what the table says.
publish() {
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  for options in "--compute sleep" "--compute device --copies 2 --verify"; do
    json=$work/publish.json
    rm -f "$json"
    # shellcheck disable=SC2086  # a list of options
    "$mpirun" --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np "$ranks" "$program" --scale 4000 -n 3 \
      -c 2 -J "$json" $options >"$work/out" 2>"$work/err" || fail "exit code $? with $options"
    python3 - "$json" "$ranks" "$options" <<'END' || fail "the JSON of '$options' is wrong"
import json, sys
report = json.load(open(sys.argv[1], encoding="utf-8"))
ranks, options = int(sys.argv[2]), sys.argv[3]
config = report["config"]
assert (config["ranks"], config["nodes"], config["rails"]) == (ranks, ranks, 1), config
assert (config["copies"], config["verify"]) == ((2, True) if "--verify" in options else (1, False)), config
assert config["stream_bw"] > 0 and config["ring_bw"] > 0, config
results = report["results"]
items = {"qwen2.5-1.5b": 45, "qwen2.5-7b": 38, "qwen2.5-32b": 55, "wall-oss-0.5": 75, "pi0.5": 83}
assert [(r["model"], r["mode"]) for r in results] == [(m, mode) for m in items for mode in ("ready", "timeline")]
for r in results:
    assert r["items"] == items[r["model"]] and r["nwrong"] == 0 and len(r["times"]) == 3, r
    assert r["time"] >= 0.9 * r["updates_time"] and r["pause"] >= 0 and (r["updates_time"] > 0) == (r["mode"] == "timeline"), r
    assert set(r["peers"]) == {"per-owner", "coalesced"} and all(p["ratio"] > 0 for p in r["peers"].values()), r
assert report["out_of_bounds"] == {"count": 0, "okay": "true"} and report["errors"] == "false"
END
    [ "$(grep -c ' ready  *0.00 .* 0  *[0-9.]*  *[0-9.]*  *[0-9.]*  *[0-9.]*$' "$work/out")" = 5 ] ||
      fail "not one line per model with #wrong 0"
    grep -q "Out of bounds values : 0 OK" "$work/out" || fail "no footer"
  done
  code=0
  "$program" --model gpt >"$work/out" 2>"$work/err" || code=$?
  [ "$code" = 2 ] && grep -q "no model 'gpt'" "$work/err" || fail "a model that does not exist ended with $code"
}

"$step"
