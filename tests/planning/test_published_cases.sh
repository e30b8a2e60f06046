#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# The program of tests/published: test_published_cases.sh PUBLISHED_CASES
program=$(realpath "$1")
tables=$(dirname "$(realpath "$0")")
source "$tables/../app/checks.sh"

# The last line is the summary.
expect 0 "time by source" "$program" "$tables/published_rows.csv"
tail -n 1 out.txt | grep -qE '^priced 36 of 37 timed rows: median [0-9.]+ %, p95 [0-9.]+ %, worst [0-9.]+ %$' ||
  fail "the last line is not the summary"
expect 0 '"median"' "$program" "$tables/published_rows.csv" --json
says '"sources"' '"p95"' '"origin"'

# The README beside the tables explains each of their columns.
for column in $(head -qn 1 "$tables"/{published,other,expert,fp8}_rows.csv | tr ',' '\n' | sort -u); do
  grep -q "^|.*\`$column\`.*|.*|" "$tables/../published/README.md" || fail "README.md does not explain the column $column" /dev/null
done

printf 'id,x\n"a,1\n' >torn.csv
expect 3 "a quoted field never ends" "$program" torn.csv
expect 3 "no_such.csv" "$program" no_such.csv
echo "id;layers" >semicolons.csv
expect 3 "the table lacks columns: layers" "$program" semicolons.csv
expect 2 "published_cases --help" "$program"
expect 2 "published_cases --help" "$program" torn.csv --jsonn
expect 2 "no-such-cluster" "$program" "$tables/published_rows.csv" --cluster no-such-cluster
exits 8 bash -c '"$1" "$2" >/dev/full' - "$program" "$tables/published_rows.csv"

# A cluster file replaces the curves of its device type.
printf '[cluster]\npreset = "a100-80"\n[device]\nstep_overhead = "100 s"\n' >slow.toml
rows='gpu,layers,hidden,heads,seq_len,gpus,tp,pp,dp,micro_batch,global_batch_seqs,iter_time_s\nA100-80GB,24,2048,16,2048,8,1,1,8,1,64,100\n'
printf "$rows" >slow.csv
expect 0 "priced 1 of 1" "$program" slow.csv --cluster slow.toml
grep -qE '^line 2 +10[0-9]\.[0-9]+ s ' out.txt || fail "the step has not the overhead of the cluster file"

# A table of somebody else: Windows' line ends, another order, a column that nobody reads, and no row that can be priced.
printf 'gpu,layers,hidden,seq_len,gpus,global_batch_seqs,iter_time_s,gpu_rack,source\r\nTPU v4,48,6144,2048,64,64,10,r1,A report 2024\r\n' >other.csv
expect 0 "note: other.csv has columns that are not read: gpu_rack" "$program" other.csv
once "gpu_rack"
says "note: other.csv has no column program" "not priced: line 2: no efficiency curve for TPU v4" "A report 2024" "0 of   1: none is priced" \
  "priced 0 of 1 timed rows: none, so there is no error to tell"
"$program" other.csv --json 2>notes.txt | python3 -c 'import json, sys; json.load(sys.stdin)' ||
  fail "a note is inside the JSON" notes.txt

# Control characters of a name or a field are shown, not sent.
printf 'id,gpu,layers,hidden,seq_len,gpus,iter_time_s\n\e[2Ja,x,1,2,3,4,5\n' >escape.csv
for table in escape.csv $'\e[2J.csv'; do
  "$program" "$table" >out.txt 2>&1
  says '\x1b[2J'
  ! LC_ALL=C grep -qP '\x1b' out.txt || fail "a control character is sent"
done
summary
