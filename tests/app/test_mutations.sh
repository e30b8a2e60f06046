#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Files that were damaged or forged in many ways, read by all commands that read them (mutate_files.cpp).
#   test_mutations.sh ESPALIER MUTATE_FILES MPIEXEC [FIRST LAST]
# Cases 1 to 400 if none are named. What a case that fails has read stays under $ESPALIER_MUTATIONS, if that is set.
espalier=$1 mutate_files=$2 mpiexec=$3
source "$(dirname "${BASH_SOURCE[0]}")/tiny_run.sh"
export OMP_NUM_THREADS=1

mkdir base
cat >base/cluster.toml <<'TOML'
[cluster]
preset = "a100-80"
nodes = 1
devices_per_node = 2
[device]
memory = "40 GB"
memory_efficiency = 0.8
[bf16]
peak = "200 TFLOP/s"
[node_link]
bandwidth = "200 GB/s"
latency = "3 us"
TOML
cat >base/model.toml <<'TOML'
[model]
preset = "gpt2-124m"
num_layers = 4
vocab_size = 50304
[batch]
sequence_length = 512
TOML
cp tiny.toml train.bin base
cd base || exit 1
settings=(checkpoint.interval=3 run.trace_steps=2)
exits 0 "$espalier" train tiny.toml "${settings[@]}"
# A run of two ranks that was killed: its progress files stay.
"$mpiexec" -n 2 "$espalier" train tiny.toml run.directory=killed run.steps=1000000 checkpoint.interval=3 >out.txt 2>&1 &
launcher=$!
for ((i = 0; i < 600; i++)); do compgen -G 'killed/checkpoints/step-*/manifest.json' >/dev/null && break; sleep 0.1; done
pkill -KILL -P "$(pgrep -d, -P $launcher)" 2>/dev/null
kill -KILL $launcher; wait $launcher 2>/dev/null
# A step that stood out: after a rate at which it diverges.
exits 5 "$espalier" train tiny.toml run.directory=spikes optimizer.learning_rate=1e30 optimizer.clip_grad_norm=0 stability.keep_incidents=1
cp -r spikes/incidents/* incident 2>/dev/null
rm -rf spikes out.txt
find killed/checkpoints -mindepth 1 -maxdepth 1 | sort -r | tail -n +3 | xargs -r rm -rf  # two are enough
ls incident >/dev/null || fail "no incident was kept" /dev/null
cd ..

"$mutate_files" "$espalier" "$work/base" "${ESPALIER_MUTATIONS:-$work}" "${4:-1}" "${5:-400}" || failures=$((failures + 1))
summary
