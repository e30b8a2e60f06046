#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Checkpoints read without Espalier, by h5py and h5dump: test_checkpoint_tools.sh ESPALIER COMMAND..., where COMMAND starts a
# program on two ranks. Exit status 77 where neither tool is installed.
espalier=$1; shift
two_ranks=("$@")
here=$(dirname "$(realpath "$0")")
source "$here/tiny_run.sh"
python= h5dump=$(command -v h5dump || true)
for candidate in python3 /usr/bin/python3; do  # the packages of Debian are for the latter
  if [[ ! $python ]] && "$candidate" -c 'import h5py' 2>/dev/null; then python=$candidate; fi
done
[[ $python || $h5dump ]] || { echo "SKIPPED: neither h5py nor h5dump is installed (ci/deps all)"; exit 77; }

runs=("run" "run.directory=tensor parallel.tensor=2 checkpoint.ranks_per_file=2" "run.directory=zero parallel.zero_stage=1 checkpoint.async=true")
for arguments in "${runs[@]}"; do
  read -ra overrides <<<"${arguments#run }"
  [[ $arguments == run ]] && overrides=()
  directory=${arguments%% *} directory=${directory#run.directory=}
  exits 0 "${two_ranks[@]}" "$espalier" train tiny.toml "${overrides[@]}"
  checkpoint=$directory/checkpoints/step-00000006
  if [[ $python ]]; then expect 0 "tensors read by the page alone; step 6" "$python" "$here/read_checkpoint.py" "$checkpoint"
  else echo "SKIPPED: h5py is not installed (ci/deps all)"; fi
  if [[ $h5dump ]]; then
    expect 0 "VIRTUAL" "$h5dump" -p -d weights/final_norm.weight "$checkpoint/index.h5"
    says "FILE \"rank-00000.h5\"" "DATASPACE  SIMPLE { ( 32 ) / ( 32 ) }"
    grep -qE '\(0\): 0\.9|\(0\): 1' out.txt || fail "h5dump shows no norms near one"
    expect 0 "data_position" "$h5dump" -d state "$checkpoint/index.h5"
  else echo "SKIPPED: h5dump is not installed (ci/deps all)"; fi
done
summary
