#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# This machine as a cluster file, from `bench machine` to the prediction that a run is held against:
# test_machine.sh ESPALIER COMMAND..., where COMMAND starts a program on two ranks.
espalier=$1; shift
two_ranks=("$@")
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

expect 0 "machine.toml" "${two_ranks[@]}" "$espalier" bench machine --output machine.toml
expect 0 "MFU" "$espalier" plan --model gpt2-124m --cluster machine.toml --batch 8 --precision fp32 --layout data=2 --layout tensor=2
expect 0 "from machine.toml" "${two_ranks[@]}" "$espalier" train tiny.toml run.cluster=machine.toml
grep -q '"predicted_step_seconds"' run/run.json || fail "run.json has no prediction" run/run.json
grep -q '"source": "machine.toml"' run/prediction.json || fail "prediction.json does not name its source" run/prediction.json
expect 2 "no_such.toml" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=other run.cluster=no_such.toml
once "no_such.toml"
summary
