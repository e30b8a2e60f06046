#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Rehearses two layouts of a model of 30 billion parameters on 32 and 64 ranks of this machine, lets `diagnose` compare them, and
# writes the answer beside this script (about seven minutes): examples/plan/compare_runs.sh [ESPALIER [MPIEXEC]]
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '4,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "${0##*/}: error: unknown argument: $1" >&2; exit 2 ;;
esac
espalier=$(realpath "${1:-build/espalier}")
mpiexec=${2:-$(command -v mpiexec.mpich || command -v mpiexec)}
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# rehearse NAME RANKS BATCH DATA SECONDS LEARNING_RATE: four steps of the layout in so many seconds, twice as long as on the
# machine, beside their price; then as many as show the loss.
rehearse() {
  "$espalier" plan --model gpt-30b --cluster "$here/a100_plain_network.toml" --batch "$3" --mpiexec "$mpiexec" \
    --layout "tensor=8,pipeline=4,data=$4,recompute=full,sequence_parallel=1" --rehearse "$1-plan" --rehearse-seconds "$5"
  OMP_NUM_THREADS=1 "$mpiexec" -n "$2" "$espalier" train "$1-plan/rehearsal.toml" "run.directory=$1" run.steps=24 \
    "optimizer.learning_rate=$6" optimizer.warmup_steps=4 optimizer.schedule=constant >"$1.txt"
}
# One replica had trained well. Replicas and micro-batches were doubled, and the learning rate multiplied like the batch.
rehearse 30b-on-32 32 8 1 10.7 0.015
rehearse 30b-on-64 64 32 2 27.4 0.06
"$espalier" diagnose 30b-on-64 --against 30b-on-32 >diagnosis.txt
{
  echo "# Why gpt-30b on 64 devices trains fewer tokens a device than on 32, and less calmly"
  echo
  awk '/^ +1\. / { sub(/^ +1\. /, ""); print "- Slower: " $0 "." }
       /^stability/ { getline; sub(/^ +[0-9]+\. /, ""); print "- Less calm: " $0 "." }' diagnosis.txt
  echo
  echo "Both runs were rehearsed: operations and messages at the speeds of [a100_plain_network.toml](a100_plain_network.toml), a second"
  echo "of the cluster in two; losses and learning rates of the tiny model that stands for the 30 billion parameters."
  echo
  echo '```'
  cat diagnosis.txt
  echo '```'
} >"$here/30b_on_64.md"
