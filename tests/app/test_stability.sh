#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Spikes, their replay, and runs that come no further, as a user meets them: test_stability.sh ESPALIER COMMAND..., where
# COMMAND starts a program on two ranks.
espalier=$1; shift
two_ranks=("$@")
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

# ---- A stretch that no model of the text expects: found, kept, replayed on one rank ----
{ write_text 150 before.txt; write_text 150 after.txt; cat before.txt; printf '~%.0s' {1..200}; cat after.txt; } >poisoned.txt
expect 0 "poisoned.bin" "$espalier" data pack --output poisoned.bin poisoned.txt
# Far into the file's order: by then the model has learned what to expect. It meets the stretch in step 102.
poisoned=('data.train=["poisoned.bin"]' run.steps=120 batch.global_batch_size=4 optimizer.learning_rate=3e-3
          stability.spike_window=32 stability.spike_threshold=7)
expect 0 "step 102 is a spike: loss" "${two_ranks[@]}" "$espalier" train tiny.toml "${poisoned[@]}" run.directory=spiky stability.keep_incidents=1
incident=$(echo spiky/incidents/step-*)
[[ -e $incident/incident.json ]] || fail "there is not one incident: $incident"
says "kept as $incident: espalier train --replay $incident"
grep -q '"anomaly":"spike"' spiky/metrics.jsonl || fail "metrics.jsonl knows no spike" spiky/metrics.jsonl
expect 0 "the data and the weights give what was recorded" "$espalier" train --replay "$incident"
says "here one rank" "reproduced" "poisoned.bin, token" "largest gradients of the step, by tensor"
grep -qE '^ +[0-9]+ +[0-9.]+ +[0-9.]+!' out.txt || fail "no sample stands out"
sed -i 's/"gradient_norm": /"gradient_norm": 1/' "$incident/incident.json"
expect 5 "suspect the layout" "$espalier" train --replay "$incident" run.matmul=tiled
says "NOT reproduced"
expect 7 "budget" "$espalier" train --replay "$incident" run.device_memory=100kB
expect 2 "replayed on one rank" "${two_ranks[@]}" "$espalier" train --replay "$incident"
expect 2 "this is not an incident" "$espalier" train --replay spiky
sed -i 's/"step"/"stop"/' "$incident/incident.json"
expect 3 "description is damaged" "$espalier" train --replay "$incident"

# ---- What is done about it ----
expect 0 "skipped: spike" "${two_ranks[@]}" "$espalier" train tiny.toml "${poisoned[@]}" run.directory=skips stability.on_spike=skip
expect 0 "skipping global samples" "${two_ranks[@]}" "$espalier" train tiny.toml "${poisoned[@]}" run.directory=back \
  stability.on_spike=rollback checkpoint.interval=10 stability.max_rollbacks=20
expect 5 "rollbacks without a new checkpoint" "${two_ranks[@]}" "$espalier" train tiny.toml "${poisoned[@]}" \
  run.directory=limit stability.on_spike=rollback stability.max_rollbacks=0
expect 2 "did you mean \"skip\"" "$espalier" train tiny.toml stability.on_spike=skips

# ---- No progress: 93 after three restarts, until somebody looks ----
for _ in 1 2 3 4; do
  expect 5 "the training diverged" "$espalier" train tiny.toml run.directory=stuck optimizer.learning_rate=1e30 optimizer.clip_grad_norm=0
done
expect 93 "do not requeue" "$espalier" train tiny.toml run.directory=stuck
says "each resumed after step 0" "the training diverged" "--retry"
cp -a stuck damaged
echo '{"bro' >damaged/run.json
expect 0 "damaged/run.json is damaged" "$espalier" train tiny.toml run.directory=damaged
says "(exit 93) are counted from zero" "completed"
expect 0 "completed" "$espalier" train tiny.toml run.directory=stuck --retry
summary
