#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# This machine as a cluster file, from `bench machine` to the prediction that a run is held against:
# test_machine.sh ESPALIER COMMAND..., where COMMAND starts a program on two ranks.
espalier=$1; shift
two_ranks=("$@")
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

expect 0 "machine.toml" "${two_ranks[@]}" "$espalier" bench machine --output machine.toml
grep -q '^gemm_rate = ' machine.toml || fail "the file does not say that its rate is measured" machine.toml
expect 0 "GEMM fraction" "$espalier" plan --model gpt2-124m --cluster machine.toml --batch 8 --precision fp32 --layout data=2 --layout tensor=2
expect 0 "from machine.toml" "${two_ranks[@]}" "$espalier" train tiny.toml run.cluster=machine.toml
! grep -q '"mfu"' run/metrics.jsonl || fail "an mfu without a peak" run/metrics.jsonl
sed 's/^gemm_rate = /peak = /' machine.toml >peak.toml  # as if the maker had named it
expect 0 "| mfu " "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=peak run.cluster=peak.toml
grep -q '"mfu"' peak/metrics.jsonl || fail "no mfu beside a peak" peak/metrics.jsonl
grep -q '"predicted_step_seconds"' run/run.json || fail "run.json has no prediction" run/run.json
grep -q '"source": "machine.toml"' run/prediction.json || fail "prediction.json does not name its source" run/prediction.json
# An injected fault is seen beside the prediction of the healthy run.
expect 0 "from machine.toml" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=slow run.cluster=machine.toml \
  --emulate slow_rank=1 --emulate slow_factor=1.5
# A file that was measured otherwise says so.
expect 0 "does not support bf16" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=bf16 run.cluster=machine.toml \
  precision.compute=bf16
once "mpiexec -n 2 espalier bench machine --precision fp32,bf16 --output ranks_2.toml"
expect 0 "does not support bf16" "$espalier" diagnose bf16
expect 0 "mpiexec -n 1 espalier bench machine --output ranks_1.toml" "$espalier" train tiny.toml run.directory=alone \
  run.cluster=machine.toml
expect 2 "no_such.toml" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=other run.cluster=no_such.toml
[[ ! -e other ]] || fail "a launch with a wrong cluster has begun a run"
once "no_such.toml"

# A step: what is told is what was run, whether an option or an override chose it.
expect 0 '"model": "byte-1m"' "$espalier" bench step --model byte-1m --micro-batch 1 --steps 1 --json precision.residual=state
says '"micro_batch": 1,' '"sequence_length": 256,' '"precision": "fp32",'
once "warning: precision.residual and precision.gradient_reduction do nothing: compute is fp32"
expect 0 '"model": "custom"' "$espalier" bench step --model byte-1m --micro-batch 1 --steps 1 --json model.num_layers=1 \
  batch.micro_batch_size=2 batch.global_batch_size=2 batch.sequence_length=32 precision.compute=bf16
says '"micro_batch": 2,' '"sequence_length": 32,' '"precision": "bf16",' ", bf16, 64 tokens per step"
# 16-bit weights, fp32 gradients, three of fp32 in the optimizer; padding of so small a model comes on top
state=$(sed -nE 's/.*"state_bytes_per_parameter": ([0-9.]+).*/\1/p' out.txt)
awk -v got="${state:-0}" 'BEGIN { exit !(got > 17.9 && got < 18.5) }' || fail "${state:-no} bytes of state a parameter, wanted 18: not bf16"
summary
