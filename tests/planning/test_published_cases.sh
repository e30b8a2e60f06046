#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# The program of tests/published: test_published_cases.sh PUBLISHED_CASES
published_cases=$1
root=$(dirname "$(realpath "$0")")/../..
source "$root/tests/app/checks.sh"

# A published table: the last line is the summary.
expect 0 "time by source" "$published_cases" "$root/tests/planning/published_rows.csv"
tail -n 1 out.txt | grep -qE '^priced 36 of 37 timed rows: median [0-9.]+ %, p95 [0-9.]+ %, worst [0-9.]+ %$' ||
  fail "the last line is not the summary"
printf 'id,x\n"a,1\n' >torn.csv
expect 3 "a quoted field never ends" "$published_cases" torn.csv
expect 3 "no_such.csv" "$published_cases" no_such.csv
echo "id;layers" >semicolons.csv
expect 3 "the table lacks columns: layers" "$published_cases" semicolons.csv
# A table of somebody else: Windows' line ends, another order, a column that nobody reads, and no row that can be priced.
printf 'gpu,layers,hidden,seq_len,gpus,global_batch_seqs,iter_time_s,gpu_rack,source\r\nTPU v4,48,6144,2048,64,64,10,r1,A report 2024\r\n' >other.csv
expect 0 "note: other.csv has columns that are not read: gpu_rack" "$published_cases" other.csv
once "gpu_rack"
says "not priced: line 2: no efficiency curve for TPU v4" "A report 2024" "0 of   1: none is priced" \
  "priced 0 of 1 timed rows: none, so there is no error to tell"
"$published_cases" other.csv --json 2>notes.txt | python3 -c 'import json, sys; json.load(sys.stdin)' ||
  fail "a note is inside the JSON" notes.txt

expect 0 '"median"' "$published_cases" "$root/tests/planning/published_rows.csv" --json
says '"sources"' '"p95"' '"origin"'
summary
