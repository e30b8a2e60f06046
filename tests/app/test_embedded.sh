#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# test_embedded.sh COMMAND...: the example ends well and has learned its text, of which guessing knows 3.4 nats per token.
set -u
output=$("$@" 2>&1) status=$?
loss=$(sed -n 's/^step 50  loss //p' <<<"$output")
if [[ $status != 0 ]] || ! awk -v loss="$loss" 'BEGIN { exit !(loss ~ /^[0-9.]+$/ && loss < 1.0) }'; then
  echo "FAILED: exit code $status, wanted 0; loss after 50 steps '$loss', wanted below 1.0; output:"; sed 's/^/  | /' <<<"$output"
  exit 1
fi
echo "loss after 50 steps: $loss"
