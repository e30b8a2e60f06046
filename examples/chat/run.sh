#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Fine-tunes a model on conversations.jsonl and asks it before and after:
#
#   examples/chat/run.sh MODEL [ESPALIER [MPIEXEC]]
#
# MODEL is a Hugging Face directory of SmolLM2-135M-Instruct: `bench/real_model DIRECTORY` makes DIRECTORY/model. All files are
# written into the current directory.
set -euo pipefail
example=$(dirname "$(realpath "$0")")
model=$1
espalier=${2:-espalier}
mpiexec=${3:-mpiexec}
show() { printf '$ %s\n' "${*/#$espalier/espalier}" | sed "s|$example|examples/chat|g; s|$model|model|g"; "$@"; }
ask() { show "$espalier" generate --checkpoint "$1" --tokenizer imported/tokenizer --temperature 0 --max-tokens 60 \
          --message "What does exit code 75 mean?" --message "Tell me who you are."; }

"$espalier" checkpoint import "$model" --output imported >import.txt
show "$espalier" data pack-conversations --tokenizer imported/tokenizer --sequence-length 256 --output train.bin \
  --validation val.bin --validation-fraction 0.1 "$example/conversations.jsonl"
ask imported
show "$mpiexec" -n 2 "$espalier" train "$example/chat.toml" --init-from "$model"
ask tuned
