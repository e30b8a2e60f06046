#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# examples/slurm as a user meets them, and ranks that die below srun. To be run where there is a Slurm of two nodes with two GPUs:
# ci/slurm test_slurm.sh ESPALIER. About a minute, since Slurm looks at time limits every 30 s.
espalier=$(realpath "$1")
root=$(realpath "$(dirname "$0")/../..")
source "$root/tests/app/tiny_run.sh"
export ESPALIER=$espalier OMP_NUM_THREADS=1 ESPALIER_BIND=0  # several jobs share the cores
ln -s "$root/examples" examples
steps=200
slow=(--emulate forward=0.1)  # two micro-batches a step: 40 s
endless=("${slow[@]}" run.steps=1000000)

# submit NAME [OPTION...] SCRIPT ARGUMENT...: two ranks, with a log of that name; prints the job's number.
submit() { sbatch --parsable --ntasks-per-node=2 --cpus-per-task=1 --output="$1.log" "${@:2}"; }
# train NAME [KEY=VALUE...]: in a run of that name.
train() { submit "$1" examples/slurm/train.sbatch tiny.toml "run.directory=$1" "${@:2}"; }
# job_says JOB KEY: JobState, ExitCode (of the script: CODE:SIGNAL), Restarts.
job_says() { scontrol -o show job "$1" | grep -oP "(?<= $2=)\S+" | head -n 1; }
running() { [[ $(job_says "$1" JobState) =~ ^(PENDING|RUNNING|COMPLETING|CONFIGURING)$ ]]; }
# ends JOB SECONDS STATE EXIT_CODE: comes to this end, that soon.
ends() {
  for ((i = 0; i < 10 * $2; i++)); do running "$1" || break; sleep 0.1; done
  local got; got="$(job_says "$1" JobState) $(job_says "$1" ExitCode)"
  [[ $got == "$3 $4:0" ]] || { scontrol show job "$1" >out.txt; fail "after $2 s job $1 is $got, wanted $3 $4:0"; }
}
not_requeued() { [[ $(job_says "$1" Restarts) == 0 ]] || fail "job $1 was requeued"; }
# log_says RUN TEXT...
log_says() { cp "$1.log" out.txt; says "${@:2}"; }
same_losses() { diff <(losses whole) <(losses "$1") >difference.txt || fail "other losses in $1 (< wanted, > got)" difference.txt; }
last_step() { tail -n 1 "$1/metrics.jsonl" | sed -E 's/^\{"step":([0-9]+),.*/\1/'; }
checkpoint_of_last_step() {
  [[ -e $1/checkpoints/$(printf 'step-%08d' "$(last_step "$1")")/manifest.json ]] || fail "no checkpoint of the last step of $1"
}

# ---- Warned before the time limit: saves, requeues itself, goes on, and loses nothing ----
# Slurm's shortest limit is a minute, and it sends the signal when it next looks: 5 to 35 s after the start.
warned=$(submit warned --time=1 --signal=USR1@25 examples/slurm/train.sbatch tiny.toml run.directory=warned "run.steps=$steps" \
  "${slow[@]}")

# ---- What runs meanwhile: never stopped, below srun, below mpiexec ----
exits 0 srun --ntasks=2 --mpi=pmi2 "$espalier" train tiny.toml run.directory=whole "run.steps=$steps"
[[ $(losses whole | wc -l) == "$steps" ]] || fail "the run that is not stopped has not $steps losses"
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)
hydra=$(submit hydra --wrap "$mpiexec -n 2 $espalier train tiny.toml run.directory=hydra run.steps=$steps")
ends "$hydra" 30 COMPLETED 0
state_is hydra completed
same_losses hydra

# ---- An array: a run for each learning rate ----
sweep=$(SWEEP_DIRECTORY=sweep submit sweep-%a examples/slurm/sweep.sbatch tiny.toml)
for task in 0 1 2; do ends "${sweep}_$task" 30 COMPLETED 0; done
for learning_rate in 3e-4 1e-3 3e-3; do
  state_is "sweep/$learning_rate" completed
  grep -q "\"learning_rate\":$(printf %g $learning_rate)," "sweep/$learning_rate/metrics.jsonl" ||
    fail "the learning rate never is $learning_rate" "sweep/$learning_rate/metrics.jsonl"
done

# ---- Two nodes, a GPU for each rank ----
cat >shows_binding <<'SCRIPT'
#!/usr/bin/env bash
echo "rank $SLURM_PROCID on $SLURMD_NODENAME sees GPU $CUDA_VISIBLE_DEVICES"
exec "$BOUND" "$@"
SCRIPT
chmod +x shows_binding
nodes=$(BOUND=$espalier ESPALIER=$PWD/shows_binding submit nodes --nodes=2 --gpus-per-node=2 examples/slurm/multi_node.sbatch \
  tiny.toml run.directory=nodes)
ends "$nodes" 30 COMPLETED 0
state_is nodes completed
[[ $(grep -o 'rank . on .* sees GPU .*' nodes.log | sort) == "rank 0 on left sees GPU 0
rank 1 on left sees GPU 1
rank 2 on right sees GPU 0
rank 3 on right sees GPU 1" ]] || fail "other nodes or GPUs than wanted" nodes.log
# SLURM_CPU_BIND_TYPE says cores, but this Slurm has no plugin that binds.
grep -q "bound by the launcher" nodes.log && fail "nobody has bound the ranks" nodes.log

# ---- Ranks that are killed, stopped, or leave with exit(0): the job fails at once or at the deadline, and is not requeued ----
cat >leave.cpp <<'CPP'
#include <unistd.h>
#include <cstdlib>
#include <ctime>
// Leaves with exit(0) out of the main thread's next sleep, which is in emulated work and not within MPI.
extern "C" int nanosleep(const timespec* wanted, timespec* rest) {
  static bool leaving = false;
  if (!leaving && gettid() == getpid() && access("leave", F_OK) == 0) {
    leaving = true;
    std::exit(0);
  }
  return clock_nanosleep(CLOCK_REALTIME, 0, wanted, rest);
}
CPP
"${CXX:-g++}" -shared -fPIC -o leave.so leave.cpp || fail "leave.cpp does not compile"
cat >second_may_leave <<'SCRIPT'
#!/usr/bin/env bash
if [[ $SLURM_PROCID == 1 ]]; then export LD_PRELOAD=$PWD/leave.so; fi
exec "$LEAVING" "$@"
SCRIPT
chmod +x second_may_leave

killed=$(train killed "${endless[@]}" checkpoint.interval=2)
stopped=$(train stopped "${endless[@]}" run.communication_timeout=5)
left=$(LEAVING=$espalier ESPALIER=$PWD/second_may_leave train left "${endless[@]}")
cancelled=$(train cancelled "${endless[@]}")
moved=$(train moved "${endless[@]}")
for run in killed stopped left cancelled moved; do wait_for "$run/metrics.jsonl"; done
for ((i = 0; i < 100; i++)); do compgen -G 'killed/checkpoints/step-*/manifest.json' >/dev/null && break; sleep 0.1; done
faults=$(date +%s)
kill -KILL "$(processes killed | sort -n | tail -n 1)"
kill -STOP "$(processes stopped | sort -n | tail -n 1)"
touch leave
scancel "$cancelled"
scontrol requeue "$moved"

# Slurm kills all ranks when one calls MPI_Abort, and srun gives 137, whatever the code, which is in the log.
ends "$killed" 30 FAILED 137
ends "$left" 30 FAILED 137
ends "$stopped" 30 FAILED 137
took() { echo $(($(date -d "$(job_says "$1" EndTime)" +%s) - faults)); }
took="after the loss of a rank: killed $(took "$killed") s, exit(0) $(took "$left") s, stopped $(took "$stopped") s (deadline 5 s)"
for job in "$killed" "$left" "$stopped"; do (($(took "$job") <= 15)) || fail "too late $took"; done
for run in killed left stopped; do nobody_left "$run"; done
for job in "$killed" "$left" "$stopped"; do not_requeued "$job"; done
grep -q '"state": "completed"' killed/run.json && fail "run.json says completed" killed/run.json
log_says left "(exit code 6)" "rank 1 left before the end of the job" "not requeued"
log_says stopped "(exit code 6)" "likely culprit" "not requeued"
state_is stopped failed
state_is left failed
expect 75 "rank 1 (" srun --ntasks=2 --mpi=pmi2 "$espalier" train tiny.toml run.directory=killed "${endless[@]}" --stop-after 1
says "resumed from killed/checkpoints/step-"

# ---- scancel: saved, and neither requeued nor lost ----
ends "$cancelled" 10 CANCELLED 75
not_requeued "$cancelled"
nobody_left cancelled
state_is cancelled preempted
checkpoint_of_last_step cancelled

# ---- Requeued from outside, as by a preemption: saved, and requeued once, by Slurm ----
for ((i = 0; i < 300; i++)); do grep -q "resumed from moved/checkpoints" moved.log && break; sleep 0.1; done
log_says moved "launch 2 of job $moved" "stopped after a saved checkpoint" "resumed from moved/checkpoints/step-"
scancel "$moved"
ends "$moved" 10 CANCELLED 75
[[ $(job_says "$moved" Restarts) == 1 ]] || fail "job $moved was requeued $(job_says "$moved" Restarts) times" moved.log

# ---- Errors that all ranks find keep their code: a wrong config, a loss that diverges, a job that comes no further ----
wrong=$(train wrong modle.num_layers=3)
ends "$wrong" 10 FAILED 2
not_requeued "$wrong"
log_says wrong "did you mean \"model\"?" "failed with 2, not requeued"
once "espalier: error on rank"
for start in 1 2 3 4; do
  exits 5 srun --ntasks=2 --mpi=pmi2 "$espalier" train tiny.toml run.directory=diverged optimizer.learning_rate=1e30
done
diverged=$(train diverged optimizer.learning_rate=1e30)
ends "$diverged" 10 FAILED 93
not_requeued "$diverged"
log_says diverged "no new checkpoint in four launches, not requeued"

# ---- The first job, which has been at it all the time ----
ends "$warned" 120 COMPLETED 0
(($(job_says "$warned" Restarts) >= 1)) || fail "job $warned was not requeued" warned.log
log_says warned "saved before its time limit, requeueing" "resumed from warned/checkpoints/step-"
state_is warned completed
starts=$(grep -oP '"starts": \K\d+' warned/run.json)
[[ $starts == $(($(job_says "$warned" Restarts) + 1)) ]] || fail "run.json counts $starts starts" warned/run.json
same_losses warned
nobody_left warned
echo "$took"
echo "a job of $steps steps: $starts starts, requeued by itself $(job_says "$warned" Restarts) times, all losses those of one start"
summary
