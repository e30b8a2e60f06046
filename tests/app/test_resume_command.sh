#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Resuming as a user meets it: test_resume_command.sh ESPALIER COMMAND..., where COMMAND starts a program on two ranks.
espalier=$1; shift
two_ranks=("$@")
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

# refused CODE "TEXT" COMMAND...: as expect, and the run directory is byte for byte as it was.
refused() {
  rm -rf before; cp -a run before
  expect "$@"
  diff -r before run >difference.txt || fail "the refused start changed the run: ${*:3}" difference.txt
}

expect 0 "completed" "${two_ranks[@]}" "$espalier" train tiny.toml checkpoint.interval=3
cp -a run good

# ---- What a run directory stands for ----
expect 0 "num_heads = 4" "$espalier" checkpoint inspect run
says "[model]" "run/checkpoints/step-00000006" "embedding.token" "of the next" "seed       1"
expect 0 "learning_rate = " "$espalier" checkpoint inspect run --config
expect 0 "run/checkpoints/step-00000006" "$espalier" checkpoint verify run
says "all checksums are right"
expect 4 "no complete checkpoint" "$espalier" checkpoint inspect run/state
expect 4 "no complete checkpoint" "$espalier" checkpoint verify nowhere
expect 0 "resumed from good/checkpoints/step-00000006" "$espalier" train tiny.toml --resume good run.directory=other run.steps=7
expect 0 "weights from good/checkpoints/step-00000006" "$espalier" train tiny.toml --init-from good run.directory=heir
expect 0 "resumed from heir/checkpoints/step-00000006" "$espalier" train tiny.toml --init-from good run.directory=heir run.steps=7
says "--init-from good was for the first launch"

# ---- Refused, and nothing has changed ----
refused 2 "--resume never" "${two_ranks[@]}" "$espalier" train tiny.toml --resume never
refused 4 "--resume names neither" "${two_ranks[@]}" "$espalier" train tiny.toml --resume atuo
refused 2 "model.num_heads: 4 -> 2" "${two_ranks[@]}" "$espalier" train tiny.toml model.num_heads=2
refused 2 "model.num_heads: 4 -> 2" "$espalier" train tiny.toml --resume good model.num_heads=2
grep -q -- --init-from out.txt && fail "weights of another model are offered"
refused 2 "--init-from loads the weights" "$espalier" train tiny.toml run.seed=2
refused 2 "run.seed: 1 -> 2" "$espalier" train tiny.toml run.seed=2
write_text 301 other.txt
exits 0 "$espalier" data pack --output other.bin other.txt
refused 3 "data.train[0]" "$espalier" train tiny.toml 'data.train=["other.bin"]'
refused 2 "ln -s NEW OLD" "$espalier" train tiny.toml 'data.train=["train.bin","other.bin"]'
refused 2 "unknown key" "$espalier" train tiny.toml run.sede=2
refused 3 "missing.bin" "${two_ranks[@]}" "$espalier" train tiny.toml 'data.train=["missing.bin"]'
refused 7 "budget" "$espalier" train tiny.toml run.device_memory=100kB
rm run/config.toml
refused 2 "batch.global_batch_size: 8 -> 16" "$espalier" train tiny.toml batch.global_batch_size=16
rm run/checkpoints/step-*/rank-00000.h5
refused 4 "none of the run's checkpoints is complete" "${two_ranks[@]}" "$espalier" train tiny.toml
says "step-00000003: a file of a checkpoint is missing" "restore the damaged files"
refused 2 "incomplete checkpoints" "$espalier" train tiny.toml --resume never
expect 4 "model.num_heads: 4 -> 2" "$espalier" train tiny.toml --init-from good model.num_heads=2 run.directory=new
expect 3 "missing.bin" "${two_ranks[@]}" "$espalier" train tiny.toml 'data.train=["missing.bin"]' run.directory=new/deep
[[ ! -e new ]] || fail "a refused start made a run directory" <(ls -R new)

# ---- Checkpoints may lie elsewhere, beside what is not this run's ----
mkdir -p scratch/mine.partial scratch/step-00000003.partial linked
echo keep | tee scratch/mine.partial/file scratch/step-00000003.partial/rank-00000.h5 >scratch/file.partial
ln -s ../scratch linked/checkpoints
expect 0 "completed" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=linked checkpoint.interval=1
expect 0 "resumed from linked/checkpoints/step-00000006" "$espalier" train tiny.toml run.directory=linked run.steps=7
ls scratch >out.txt
[[ $(cat scratch/mine.partial/file scratch/step-00000003.partial/rank-00000.h5 scratch/file.partial | grep -c keep) == 3 ]] ||
  fail "a save removed what is not this run's"
[[ $(ls -d scratch/step-???????? | wc -l) == 2 ]] || fail "own checkpoints are not removed behind a link"
mkdir dangling; ln -s ../nowhere dangling/checkpoints
expect 2 "does not lead to a directory" "$espalier" train tiny.toml run.directory=dangling
[[ $(ls dangling) == checkpoints ]] || fail "a refused start leaves files"
for name in state ranks trace incidents; do
  mkdir "linked-$name"; ln -s ../scratch "linked-$name/$name"
  expect 2 "$name" "$espalier" train tiny.toml "run.directory=linked-$name"
  says "is a link" "only checkpoints may be a link"
done

# ---- Metrics and config of another run, killed before its first save, are not written over ----
cp -a good killed; rm -rf killed/checkpoints
sed -i 's/"state": "completed"/"state": "failed"/' killed/run.json
rm -rf run; cp -a killed run
refused 2 "model.num_layers: " "${two_ranks[@]}" "$espalier" train tiny.toml model.num_layers=3
says "the run directory belongs to a run with another config" "its metrics, of 6 steps"
expect 0 "no checkpoint to resume from after 6 steps: starts over" "$espalier" train tiny.toml
cmp run/metrics.abandoned.jsonl killed/metrics.jsonl || fail "the metrics of the run that was begun again are lost"
cp killed/metrics.jsonl run/metrics.jsonl; rm -rf run/checkpoints; cp killed/run.json run/run.json
expect 0 "the records of the earlier launch are kept as metrics.abandoned-2.jsonl" "$espalier" train tiny.toml
rm -rf run; cp -a good run; rm -rf run/checkpoints
refused 4 "this run is completed, but its checkpoints are gone" "${two_ranks[@]}" "$espalier" train tiny.toml
cp -a killed purged
sed -i 's/^interval = .*/interval = 2/' purged/config.toml
refused 4 "this run has saved a checkpoint, but it is gone" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=purged
says "metrics.jsonl has 6 steps, with checkpoint.interval = 2"
rm -rf run; cp -a killed run
expect 0 "config changed: model.num_layers = 3 (was 2)" "$espalier" train tiny.toml model.num_layers=3 --resume never

# ---- A run that another has finished: this one has its checkpoint, too ----
expect 0 "nothing left to do" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=moved --resume good
[[ -s moved/checkpoints/step-00000006/manifest.json ]] || fail "no checkpoint in the run that resumes from a finished one"
expect 0 "resumed from moved/checkpoints/step-00000006" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=moved

# ---- A request to stop before the first step: 75, at once, and nothing was begun ----
"$espalier" train tiny.toml run.directory=early >out.txt 2>&1 &
job=$!
holds_sigterm "$job" || fail "it did not come so far as to hold SIGTERM"
kill -TERM "$job"
got=0; wait "$job" || got=$?
[[ $got == 75 ]] || fail "exit code $got after SIGTERM before the first step, wanted 75"
says "stopped before the first step"

# ---- The last validation: what was trained is saved before, the number comes with the next start ----
write_text 6000 long.txt
expect 0 "val.bin" "$espalier" data pack --output val.bin long.txt
for signal in TERM KILL; do
  run=validated-$signal
  "$espalier" train tiny.toml "run.directory=$run" 'data.validation=["val.bin"]' >out.txt 2>&1 &
  job=$!
  wait_for "$run/checkpoints/step-00000006/manifest.json"
  kill -s "$signal" "$job"
  got=0; wait "$job" || got=$?
  if [[ $signal == TERM ]]; then
    [[ $got == 75 ]] || fail "exit code $got after SIGTERM in the last validation, wanted 75"
    once "stop requested, saving: asked to stop by SIGTERM"
    state_is "$run" preempted
  fi
  [[ $(grep -c '"step":6,' "$run/metrics.jsonl") == 1 ]] || fail "the last step has no line" "$run/metrics.jsonl"
  grep -q validation_loss "$run/metrics.jsonl" && fail "the validation was not cut short" "$run/metrics.jsonl"
  expect 0 "validation loss" "$espalier" train tiny.toml "run.directory=$run" 'data.validation=["val.bin"]' run.eval_samples=64
  says "nothing left to do" "completed"
  state_is "$run" completed
  [[ $(wc -l <"$run/metrics.jsonl") == 6 ]] || fail "other than a line a step" "$run/metrics.jsonl"
  grep -qE '^\{"step":6,.*,"validation_loss":[0-9.]+\} *$' "$run/metrics.jsonl" || fail "the number is lost" "$run/metrics.jsonl"
  expect 0 "completed" "$espalier" train tiny.toml "run.directory=$run" 'data.validation=["val.bin"]'
  grep -q "validation loss" out.txt && fail "a completed run is validated again"
done

# ---- What a user has put where a run would write stays ----
rm -rf run; mkdir run; cp tiny.toml run/config.toml
refused 2 "a file that Espalier did not write" "$espalier" train run/config.toml
rm run/config.toml; echo "my notes" >run/metrics.jsonl
refused 2 "run/metrics.jsonl" "$espalier" train tiny.toml
rm -rf run

# ---- A damaged newest checkpoint is passed over aloud, and verify finds it ----
cp -a good run; truncate -s 1000 run/checkpoints/step-00000006/rank-00000.h5
for command in "checkpoint inspect run" "generate --max-tokens 4 --checkpoint run" \
               "train tiny.toml --init-from run run.directory=heir2" "train tiny.toml --resume run run.directory=heir3"; do
  expect 0 "passing over run/checkpoints/step-00000006: " "$espalier" $command
done
expect 4 "step-00000006: " "$espalier" checkpoint verify run
says "step-00000003: " "all checksums are right"
rm -rf run; cp -a good run; printf x | dd of=run/checkpoints/step-00000003/rank-00000.h5 bs=1 seek=6000 conv=notrunc status=none
expect 4 "step-00000003: " "$espalier" checkpoint verify run
rm -rf run; cp -a killed run

# ---- Empty values, as of shell variables that are not set ----
expect 2 'init-from ""' "$espalier" train tiny.toml --init-from ""
expect 2 'replay ""' "$espalier" train tiny.toml --replay ""

# ---- Another precision, from each to the next and back, by the loss of the next samples ----
steps=6 source=(--resume good)
for compute in bf16 fp16 fp64 fp32; do
  expect 0 "precision.compute = '$compute'" "$espalier" train tiny.toml run.directory=typed "${source[@]}" \
    "precision.compute=$compute" "run.steps=$((steps += 2))"
  says "have the loss that was stored" "completed"
  source=()
done

# ---- The same file under another path ----
expect 0 "config changed: data.train" "$espalier" train tiny.toml run.directory=heir run.steps=8 "data.train=[\"$PWD/./train.bin\"]"

# ---- A full disk, under the log or the run: 8, and the run resumes from its checkpoint ----
full_log() { "$@" >/dev/full; }
expect 8 "cannot write the log" full_log "$espalier" train tiny.toml run.directory=unlogged
expect 0 "completed" "$espalier" train tiny.toml run.directory=unlogged
# on_small_disk SIZE COMMAND...: with a disk of this size at ./disk, of which a copy is left in ./left.
on_small_disk() {
  mkdir -p disk; rm -rf left
  unshare --user --map-root-user --mount bash -c '
    mount -t tmpfs -o size="$0" none disk || exit 99
    "$@"; code=$?; cp -a disk left; exit $code' "$@"
}
if mkdir -p disk && unshare --user --map-root-user --mount mount -t tmpfs none disk 2>/dev/null; then
  for size in 4k 8k 12k 16k; do  # full before config.toml, run.json or what follows them
    expect 8 "disk/run/" on_small_disk "$size" "$espalier" train tiny.toml run.directory=disk/run
  done
  endless=(run.steps=1000000 run.log_interval=1000)
  expect 8 "cannot write the metrics file" on_small_disk 100k "${two_ranks[@]}" "$espalier" train tiny.toml "${endless[@]}" run.directory=disk/run
  expect 8 "no space for a checkpoint" on_small_disk 1m "${two_ranks[@]}" "$espalier" train tiny.toml "${endless[@]}" \
    run.directory=disk/run checkpoint.interval=2
  expect 75 "resumed from left/run/checkpoints/step-00000004" "$espalier" train tiny.toml "${endless[@]}" run.directory=left/run --stop-after 1
else
  echo "SKIPPED: no small disk can be mounted here (user namespaces)"
fi

# ---- Moved away under the run: the next save misses it, and nothing is made where it was ----
for async in false true; do
  endless=(run.steps=1000000 run.log_interval=1000 checkpoint.interval=50 "checkpoint.async=$async")
  "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=moved "${endless[@]}" >out.txt 2>&1 &
  job=$!
  wait_for moved/metrics.jsonl
  mv moved "elsewhere-$async"
  got=0; wait "$job" || got=$?
  [[ $got == 8 ]] || fail "exit code $got after the run directory was moved, wanted 8"
  says "moved or removed during the run" "is now $PWD/elsewhere-$async"
  state_is "elsewhere-$async" failed
  [[ ! -e moved ]] || fail "something was made where the run directory was" <(ls -R moved)
  expect 75 "the same command resumes" "$espalier" train tiny.toml run.directory="elsewhere-$async" "${endless[@]}" --stop-after 1
done

# ---- Of runs that share a place for checkpoints each has its own verified ----
mkdir shared
for name in one two; do
  mkdir -p $name && ln -s ../shared $name/checkpoints
  expect 0 "completed" "$espalier" train tiny.toml run.directory=$name run.steps=1
done
expect 0 "1 checkpoint of other runs in the same place: not read" "$espalier" checkpoint verify one
[[ $(grep -c "all checksums are right" out.txt) == 1 ]] || fail "checkpoints of another run are verified, too"

# ---- The log's error is told once; a reader that is gone does no harm to a run that completes ----
full_log "$espalier" train tiny.toml run.directory=unlogged2 2>out.txt
[[ $(grep -c "cannot write" out.txt) == 1 ]] || fail "a full log is told more than once, or not at all"
"$espalier" train tiny.toml run.directory=unread1 run.steps=1 2>error.txt | true
[[ ${PIPESTATUS[0]} == 0 ]] || fail "a run that completes without a reader ends with an error" error.txt
state_is unread1 completed

# ---- A reader that goes away asks for a stop ----
"$espalier" train tiny.toml run.directory=unread run.steps=1000000 2>error.txt | head -n 5 >/dev/null
got=${PIPESTATUS[0]}
[[ $got == 75 ]] || fail "exit code $got after the pipe was closed, wanted 75" error.txt
state_is unread preempted
summary
