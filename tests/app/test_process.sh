#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# The environment and the limits of a process: what cannot work is refused by name before anything is computed, and what is
# slow is told. test_process.sh ESPALIER COMMAND..., where COMMAND starts a program on two ranks. Nothing may hang or be killed.
espalier=$1; shift
two_ranks=("$@")
script=$(realpath "$0")
source "$(dirname "$script")/checks.sh"
unset OMP_PROC_BIND OMP_WAIT_POLICY
export OMP_NUM_THREADS=2

write_text 200 text.txt
cat >run.toml <<'TOML'
[model]
preset = "byte-1m"
num_layers = 1
hidden_size = 32
num_heads = 2
ffn_hidden_size = 64
max_sequence_length = 32
[data]
train = ["train.bin"]
[batch]
global_batch_size = 4
[run]
directory = "run"
steps = 2
TOML
bounded() { timeout -k 1 60 "$@"; }
# limited OPTION VALUE COMMAND...: under this ulimit; its output is no file, which a limit may be too small for.
limited() { (ulimit "$1" "$2"; shift 2; bounded "$@" 2>&1) | cat; return "${PIPESTATUS[0]}"; }
train=("$espalier" train run.toml)
expect 0 "train.bin" "$espalier" data pack --output train.bin text.txt

# ---- Variables with which the threads of a rank do not come, or which say nothing: the name, the value, 2 ----
refuses() {
  expect 2 "${1%%=*}" bounded env "$1" "${train[@]}"
  once "error"
  [[ ! -e run ]] || { fail "$1 was refused, and yet a run was begun"; rm -r run; }
}
for setting in OMP_DYNAMIC=true OMP_DYNAMIC=maybe OMP_MAX_ACTIVE_LEVELS=0 OMP_THREAD_LIMIT=1 OMP_NUM_THREADS=520 OMP_NUM_THREADS=0 \
  OMP_NUM_THREADS=-1 OMP_NUM_THREADS=abc OMP_NUM_THREADS=2,x OMP_PROC_BIND=perhaps 'OMP_PLACES={4000}' GOMP_CPU_AFFINITY=4000 OMP_STACKSIZE=16k \
  OMP_STACKSIZE=100000G OMP_STACKSIZE=big KOKKOS_NUM_THREADS=0 KOKKOS_NUM_THREADS=1000 KOKKOS_NUM_THREADS=abc KOKKOS_DEVICE_ID=abc \
  GOMP_STACKSIZE=big GOMP_STACKSIZE=16k GOMP_STACKSIZE=100000G OMP_NUM_THREADS=99999999999999999999 OMP_THREAD_LIMIT=99999999999999999999 \
  KOKKOS_NUM_THREADS=18446744073709551617; do
  refuses "$setting"
done
for setting in ESPALIER_BIND=maybe ESPALIER_PROGRESS=dots ESPALIER_REEXEC=foo ESPALIER_RANKS_PER_GPU=foo ESPALIER_RANKS_PER_GPU=0; do refuses "$setting"; done
expect 0 "threads each" bounded env -u OMP_NUM_THREADS ESPALIER_REEXEC=1 "${train[@]}" run.directory=again run.steps=1
expect 2 "OMP_NUM_THREADS=2, KOKKOS_NUM_THREADS=1" bounded env OMP_NUM_THREADS=2 KOKKOS_NUM_THREADS=1 "${train[@]}"
expect 0 "completed" bounded env OMP_NUM_THREADS=1 KOKKOS_NUM_THREADS=1 "${train[@]}" run.directory=both run.steps=1
expect 2 "--kokkos-threads=600" bounded "${train[@]}" --kokkos-threads=600
for command in "bench ops --model byte-1m --only gelu" "bench step --model byte-1m" "bench machine" "verify run.toml" \
  "generate --checkpoint run"; do
  expect 2 "OMP_MAX_ACTIVE_LEVELS=0" bounded env OMP_MAX_ACTIVE_LEVELS=0 "$espalier" $command
done
expect 2 "OMP_DYNAMIC=true" bounded "${two_ranks[@]}" env OMP_DYNAMIC=true "${train[@]}"
once "OMP_DYNAMIC=true"
expect 0 "completed" bounded env OMP_DYNAMIC=true OMP_NUM_THREADS=1 "${train[@]}"
expect 0 "completed" bounded env OMP_NUM_THREADS=2,1 "${train[@]}" run.directory=list

# ---- Ranks have cores of their own where OpenMP binds, and threads without a core are told once ----
if (($(env -u OMP_NUM_THREADS nproc) > 1)); then
  for setting in OMP_PROC_BIND=true OMP_PLACES=cores; do
    expect 0 "bound by Espalier" bounded "${two_ranks[@]}" env OMP_NUM_THREADS=1 $setting "${train[@]}" run.directory=bound run.steps=1
    ! grep -q "warning: .* threads on" out.txt || fail "two ranks with $setting share a core"
    rm -r bound
  done
  expect 0 "$(env -u OMP_NUM_THREADS nproc) threads each" bounded env -u OMP_NUM_THREADS OMP_PROC_BIND=true "${train[@]}" run.directory=whole
  expect 0 "2 threads on 1 core" bounded "${two_ranks[@]}" env OMP_NUM_THREADS=1 'OMP_PLACES={0}' "${train[@]}" run.directory=placed
  says "OMP_PLACES={0} chooses these cores"
  expect 0 "2 threads on 1 core" bounded env OMP_NUM_THREADS=2 OMP_PLACES=cores OMP_PROC_BIND=primary "${train[@]}" run.directory=primary
  says "OMP_PROC_BIND=primary binds all threads of a rank to one core"
fi
threads=$(($(env -u OMP_NUM_THREADS nproc) + 1))
expect 0 "$threads threads on $(env -u OMP_NUM_THREADS nproc) core" bounded env OMP_NUM_THREADS=$threads "$espalier" bench ops --model byte-1m --only gelu \
  --precision fp32
once "warning"

# ---- Closed descriptors: what is printed goes into no file of the run ----
exits 8 bash -c "exec $espalier train run.toml run.directory=closed <&- >&- 2>&-"
[[ ! -e closed/metrics.jsonl ]] || ! grep -rlE "parameters, |matmuls by" closed || fail "the log is in a file of the run" closed/run.json
exits 8 bash -c "exec $espalier data pack --output closed.bin text.txt >&-"
expect 0 "every token" "$espalier" data inspect closed.bin

# ---- Limits of the shell ----
for kib in 300000 450000 700000; do
  expect 7 "ulimit -v" limited -v $kib "${train[@]}"
  expect 7 "ulimit -v" limited -v $kib "${two_ranks[@]}" "${train[@]}"
  once "error"
done
expect 7 "ulimit -v" limited -v 300000 "$espalier" plan
expect 7 "(ulimit -v 3000000 included)" limited -v 3000000 "${train[@]}" model.hidden_size=4096 model.num_layers=8
expect 7 "ulimit -d" limited -d 100000 "${train[@]}"
expect 7 "ulimit -s 64" limited -s 64 "${train[@]}"
(failures=0; ulimit -n 40; expect 7 "ulimit -n 40" bounded "${train[@]}"; exit $failures) || failures=$((failures + 1))
expect 0 "completed" limited -Sn 20 "${train[@]}" run.directory=files
expect 8 "ulimit -f" limited -f 100 "${train[@]}"
expect 8 "ulimit -f 6000" limited -f 6000 "${train[@]}" model.hidden_size=256 model.ffn_hidden_size=2048
expect 8 "ulimit -f" limited -f 8 "$espalier" data pack --output other.bin text.txt
expect 0 "completed" limited -t 600 "${train[@]}" run.directory=time

# ---- What only root can try: processes of another user, and another /dev/shm ----
if ((EUID == 0)) && command -v setpriv >/dev/null && su_test=$(mktemp -d) && cp "$espalier" run.toml train.bin "$su_test"; then
  chmod 777 "$su_test"
  as_nobody() { (cd "$su_test" && bounded setpriv --reuid 54321 --regid 54321 --clear-groups bash -c "ulimit -u $1; exec ./${espalier##*/} train run.toml"); }
  for processes in 1 2 3; do
    expect 7 "ulimit -u $processes" as_nobody $processes
  done
  rm -r "$su_test"
fi
if unshare -m true 2>/dev/null; then
  small() { unshare -m bash -c 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"' - timeout -k 1 60 "$@"; }
  expect 7 "/dev/shm is too small" small "${train[@]}"
  expect 7 "/dev/shm is too small" small "${two_ranks[@]}" "${train[@]}"
  once "error"
fi
summary
