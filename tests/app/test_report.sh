#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# report.html of a run and `espalier report`: test_report.sh ESPALIER MPIEXEC NUMPROC_FLAG RANKS [PREFLAGS...]
espalier=$1 launcher=("${@:2}")
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

# has PAGE TEXT...: the page holds each of them.
has() {
  local page=$1 text; shift
  for text in "$@"; do grep -qF -- "$text" "$page" || fail "$page has no \"$text\"" /dev/null; done
}

# Two ranks with a trace: train writes the page at its end, with data for every card.
expect 0 "completed" "${launcher[@]}" "$espalier" train tiny.toml run.trace_steps=1 run.eval_interval=3 'data.validation=["train.bin"]'
parts=(loss validation_loss learning_rate gradient_norm tokens_per_second memory phases timeline)
for part in "${parts[@]}"; do has run/report.html "\"$part\":"; ! grep -qE "\"$part\":(null|\[\])" run/report.html || fail "no $part" /dev/null; done
has run/report.html "<title>run - Espalier report" '"state":"completed"' "tensor 1 x data 2 x pipeline 1" '"last_step":6' '"ranks":{"num_ranks":2' '"rank":1'

# By hand, also into another file; a run that stopped, and one with a name that is markup.
rm run/report.html
expect 0 "wrote run/report.html" "$espalier" report run
expect 0 "wrote other.html" "$espalier" report run --output other.html
written() { sed 's/"written":"[^"]*"//' "$1"; }
diff <(written run/report.html) <(written other.html) >/dev/null || fail "the two pages differ"
expect 75 "stopped" "$espalier" train tiny.toml 'run.directory=a <b>' --stop-after 1
has "a <b>/report.html" "preempted" "stopped after 1 step" "<title>a &lt;b&gt;" '"name":"a \u003cb>"' "only one step was recorded"

# The data alone, for programs.
expect 0 '"gemm_fraction"' "$espalier" report run --json
says '"validation_loss"' '"timeline"'
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' out.txt || fail "no JSON" out.txt
expect 2 "--output" "$espalier" report run --json --output x.html

# What cannot be written is a note; the run is as good as without.
exits 0 "$espalier" train tiny.toml run.directory=blocked run.steps=2
rm blocked/report.html
mkdir blocked/report.html
expect 0 "report.html could not be written" "$espalier" train tiny.toml run.directory=blocked
state_is blocked completed

# Bad input.
mkdir empty
expect 2 "not a run directory" "$espalier" report empty
expect 2 "no such directory" "$espalier" report no-such-run
expect 2 "run is required" "$espalier" report
expect 8 "" "$espalier" report run --output /proc/report.html
expect 2 'got:    --output ""' "$espalier" report run --output ''
says "wanted: FILE.html"
expect 2 'got:    --against ""' "$espalier" diagnose run --against ''
cp -r run torn && echo '{"state": ' >torn/run.json
expect 3 "run.json cannot be read" "$espalier" report torn
cp -r run other-version && echo '{"step": 7}' >>other-version/metrics.jsonl
expect 3 "not have the fields of a step" "$espalier" report other-version
cp -r run torn-trace && sed -i '9s/.*/{"ph": "X", "na/' torn-trace/trace/rank-00001.json
expect 3 "where:  torn-trace/trace/rank-00001.json:9" "$espalier" report torn-trace
expect 3 "where:  torn-trace/trace/rank-00001.json:9" "$espalier" diagnose torn-trace
cp -r run half-trace && rm half-trace/trace/rank-00001.json
expect 0 "note: trace/ has no file of rank 1" "$espalier" diagnose half-trace
expect 0 "wrote" "$espalier" report half-trace
has half-trace/report.html "trace/ has no file of rank 1"
summary
