#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# `espalier plan --rehearse`: the plan, executed: test_rehearse.sh ESPALIER MPIEXEC...
espalier=$1; shift
mpiexec="$*"
tests=$(dirname "$(realpath "$0")")
source "$tests/checks.sh"
plan=("$espalier" plan --model gpt-22b --cluster a100-80 --mpiexec "$mpiexec")

# off_by_less PERCENT: the rehearsed step of the last output lies so near to the predicted one.
off_by_less() {
  local percent; percent=$(sed -nE 's/^  step .* ([+-][0-9.]+) %$/\1/p' out.txt | tr -d '+-')
  awk -v got="${percent:-1e9}" -v most="$1" 'BEGIN { exit !(got < most) }' || fail "the rehearsed step is off by ${percent:-?} %"
}

# A pipeline, a mesh of all three axes, one layout of a search: rehearsed beside predicted.
expect 0 "rehearsed on 4 ranks" "${plan[@]}" --batch 16 --layout data=1,pipeline=4 --rehearse pipeline --rehearse-seconds 8
says "forward" "bubble" "its run: pipeline/run"
off_by_less 15
expect 0 '"completed"' cat pipeline/run/run.json
expect 0 "rehearsed on 8 ranks" "${plan[@]}" --batch 16 --layout tensor=2,data=2,pipeline=2 --rehearse mesh --rehearse-seconds 12
says "tensor_comm"
off_by_less 20
expect 0 "against pipeline/run" "$espalier" diagnose mesh/run --against pipeline/run

# Many micro-batches: some of them are run, the whole step is told. What else lies in the directory stays there.
echo "mine" >pipeline/notes.txt
expect 0 "8 of 64 micro-batches" "${plan[@]}" --batch 64 --layout data=1,pipeline=2 --rehearse pipeline --rehearse-seconds 4
off_by_less 15
expect 0 "mine" cat pipeline/notes.txt

# The scaling curve, once more in the same directory, for programs.
expect 0 "efficiency" "$espalier" plan --model gpt2-1558m --cluster a100-80 --mpiexec "$mpiexec" --batch 16 --scale 2,4 --rehearse scale --rehearse-seconds 4
[[ -d scale/1-ranks-2/run && -d scale/2-ranks-4/run ]] || fail "the runs of the curve are not kept"
expect 0 '"planned_microbatches": 16' "${plan[@]}" --batch 16 --layout data=1,pipeline=2 --json --rehearse pipeline --rehearse-seconds 2
says '"rehearsed_step_seconds"' '"rehearsed_efficiency": 1.0' '"microbatches": 8'

# Replicas and micro-batches doubled, over a plain network (examples/plan): why a device trains fewer tokens, and what
# else has changed for the loss.
pair=("$espalier" plan --model gpt-22b --cluster "$tests/../../examples/plan/a100_plain_network.toml" --mpiexec "$mpiexec")
layout=pipeline=8,order=pipeline_first
expect 0 "rehearsed on 8 ranks" "${pair[@]}" --batch 16 --layout "$layout,data=1" --rehearse one --rehearse-seconds 6
expect 0 "rehearsed on 16 ranks" "${pair[@]}" --batch 64 --layout "$layout,data=2" --rehearse two --rehearse-seconds 16
expect 0 "the effective batch is 4 times" "$espalier" diagnose two/run --against one/run
says "gradient_reduction explains" "summing gradients over 2 replicas" "optimizer.learning_rate = 0.0006,"

# Sharded parameters: the gathers lie behind the blocks' compute, as the prices say.
expect 0 "rehearsed on 8 ranks" "${plan[@]}" --batch 16 --layout data=8,zero=3 --rehearse sharded --rehearse-seconds 8
says "data_comm"
off_by_less 15

# Refused.
expect 2 "no context parallelism" "${plan[@]}" --batch 16 --layout data=4,context=2 --rehearse refused
expect 2 "shard_over = node" "${plan[@]}" --batch 16 --layout data=8,zero=3,shard_over=node --rehearse refused
expect 2 "64 at most" "$espalier" plan --model gpt-22b --cluster a100-80:16 --batch 128 --layout data=128 --rehearse refused
expect 2 "64 at most" "$espalier" plan --model gpt2-1558m --cluster a100-80 --batch 128 --scale 2,128 --rehearse refused
expect 2 "has files that no rehearsal wrote" "${plan[@]}" --batch 16 --layout data=1,pipeline=2 --rehearse .
[[ ! -e refused ]] || fail "a refused rehearsal made a directory"
expect 2 "the rehearsal did not start" "$espalier" plan --model gpt-22b --cluster a100-80 --batch 16 --layout data=1,pipeline=2 --rehearse none \
  --mpiexec no_such_mpiexec
says "no_such_mpiexec"
# A run that starts and fails: its exit code. (Percentages of parts count from 100, so a second stands for a hundred.)
cat >deadline.sh <<END
#!/bin/sh
exec $mpiexec "\$@" run.communication_timeout=2 --emulate forward=1
END
chmod +x deadline.sh
expect 6 "the rehearsal failed" "$espalier" plan --model gpt-22b --cluster a100-80 --batch 16 --layout data=1,pipeline=2 --rehearse late --mpiexec ./deadline.sh
says "late/log.txt" "without success" "do:"

# What run.json says counts, not what the launcher makes of the ranks' codes: launchers that leave with another, or kill.
# ends_as NAME CODE TEXT: the rehearsal with the launcher NAME.sh.
ends_as() {
  chmod +x "$1.sh"
  expect "$2" "$3" "$espalier" plan --model gpt-22b --cluster a100-80 --batch 16 --layout data=1,pipeline=2 --rehearse "$1" \
    --rehearse-seconds 4 --mpiexec "./$1.sh"
}
printf '#!/bin/sh\n./deadline.sh "$@"\nexit 7\n' >combined.sh
ends_as combined 6 "the rehearsal failed"
says "without success" "combined/log.txt"
printf '#!/bin/sh\n%s "$@"\nexit 14\n' "$mpiexec" >careless.sh
ends_as careless 0 "rehearsed on 2 ranks"
cat >killed$$.sh <<END
#!/bin/sh
$mpiexec "\$@" --emulate forward=1 &
while ! grep -q '"running"' killed$$/run/run.json 2>/dev/null; do sleep 0.1; done
pkill -9 -f "^$espalier train killed$$/rehearsal.toml"
wait \$!
END
ends_as killed$$ 6 "was ended before its last step"
says "exit code" "killed$$/log.txt"
printf '#!/bin/sh\nexit 0\n' >idle.sh
ends_as idle 2 "the rehearsal did not start"
printf '#!/bin/sh\n%s "$@" run.device_memory=1kB\n' "$mpiexec" >small.sh
ends_as small 7 "the rehearsal failed before it trained"
summary
