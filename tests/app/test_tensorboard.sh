#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# What people watch a run by, read by the packages of Python that they use: TensorBoard, and a table of CSV.
# test_tensorboard.sh ESPALIER
# The Python is ESPALIER_PYTHON, or python3. Exit status 77 where it has no tensorboard.
espalier=$1
here=$(dirname "$(realpath "$0")")
python=${ESPALIER_PYTHON:-python3}
if ! reason=$("$python" -c 'import tensorboard' 2>&1); then
  echo "SKIPPED: $python cannot import tensorboard (${reason##*$'\n'}); ESPALIER_PYTHON may name another Python"
  exit 77
fi
source "$here/tiny_run.sh"
# Markdown in a prompt is shown as it is.
watched=(run.tensorboard=true run.metrics_csv=true run.sample_interval=2 'run.sample_prompts=["The **tree**", "a\n_b_"]'
         run.sample_tokens=8 run.eval_interval=3 'data.validation=["train.bin"]' run.eval_samples=8)
check() { "$python" "$here/read_watched.py" "$1" "${@:2}" >out.txt 2>&1 || fail "TensorBoard does not see the run $1"; }

# A whole run; one that was stopped; one whose last steps are lost and taken again by a later launch, with another loss.
expect 0 "step 2: The **tree**" "$espalier" train tiny.toml "${watched[@]}"
check run
expect 75 "stopped" "$espalier" train tiny.toml "${watched[@]}" run.directory=stopped --stop-after 4
check stopped
expect 0 "completed" "$espalier" train tiny.toml "${watched[@]}" run.directory=stopped
check stopped
expect 0 "completed" "$espalier" train tiny.toml "${watched[@]}" run.directory=again checkpoint.interval=3
rm -r again/checkpoints/step-00000006
sed -i 's/"state": "completed"/"state": "failed"/' again/run.json
expect 0 "completed" "$espalier" train tiny.toml "${watched[@]}" run.directory=again optimizer.weight_decay=0.9 run.steps=8
check again
summary
