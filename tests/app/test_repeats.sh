#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Runs with one seed have the same bits, losses and checkpoint: test_repeats.sh ESPALIER [section.key=value...], the
# overrides of a tiny run. Three start, and three go on from the first one's checkpoint in the middle. On GPUs matmuls'
# kernels are chosen by timing: a start that chose otherwise is told, and its bits are its own; who goes on takes the
# kernels of the checkpoint.
espalier=$(realpath "$1"); shift
overrides=("$@")
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

# trains DIRECTORY OVERRIDE...
trains() { expect 0 "completed" "$espalier" train tiny.toml checkpoint.interval=3 "${overrides[@]}" run.directory="$1" "${@:2}"; }
last=checkpoints/step-00000006
kernels() { sed -n '/^  "matmul_kernels": \[/,/^  \]/p' "$1/$last/manifest.json"; }
# same RUN: as `first`.
same() {
  cmp -s <(losses first) <(losses "$1") || fail "$1: other losses than the first run" <(diff <(losses first) <(losses "$1"))
  cmp "first/$last/rank-00000.h5" "$1/$last/rank-00000.h5" >out.txt 2>&1 || fail "$1: another checkpoint than the first run's"
}

trains first
for run in second third; do
  trains $run
  if cmp -s <(kernels first) <(kernels $run); then same $run; else
    echo "$run has timed its kernels otherwise: $(diff <(kernels first) <(kernels $run) | grep -c '^>') lines of matmul_kernels"
  fi
  rm -r $run
done
for run in resumed again once_more; do
  cp -r first $run
  rm -r "${run:?}/$last"
  trains $run
  grep -q "resumed from $run/checkpoints/step-00000003" out.txt || fail "$run did not go on from step 3"
  same $run
  rm -r $run
done
summary
