#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# `espalier plan` as a user meets it: test_plan.sh ESPALIER
espalier=$1
script=$(realpath "$0")
root=$(dirname "$script")/../..
source "$(dirname "$script")/checks.sh"

# The memos of examples/plan are what its commands write.
cp "$root"/examples/plan/run.sh "$root"/examples/plan/*.toml .
exits 0 bash run.sh "$(realpath "$espalier")"
for memo in 200b_on_40_gb 22b_from_8_to_32 30b_on_8 13b_on_24_gb 30b_to_64 refresh which_cluster; do
  cmp -s "$memo.md" "$root/examples/plan/$memo.md" || fail "examples/plan/$memo.md is not what run.sh writes"
done

# A search, its memo, and a config that train takes as it is.
expect 0 "not chosen" "$espalier" plan --model gpt2-1558m --cluster a100-80 --batch 64 --memo memo.md --config plan.toml
says "1.558 B parameters" "8 devices" "MFU" "bubble"
for heading in "How it fits in memory" "Where gradients are synchronised" "What micro-batches do" "Precision" "What limits it"; do
  grep -q "$heading" memo.md || fail "the memo has no part on \"$heading\"" memo.md
done
expect 0 "memory" "$espalier" train plan.toml --dry-run --ranks 8

# Also where shards lie within nodes: the nodes are those of run.cluster. A device that train has no build for has no config.
expect 0 "wrote nodes.toml" "$espalier" plan --model gpt2-124m --cluster a100-80:2 --batch 64 --config nodes.toml \
  --fix shard_over=node,zero_stage=3,data=16
expect 0 "memory" "$espalier" train nodes.toml --dry-run --ranks 16
expect 2 "train does not run on mi250x yet" "$espalier" plan --model gpt2-124m --cluster mi250x:2 --batch 64 --config amd.toml

# What nobody but the user knows stands in the file and on the screen, or comes from --set and --model FILE.
config=("$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --config filled.toml)
expect 0 "before it trains, fill in" "${config[@]}" --devices 4
says "data.train: replace train.bin by your token files" "run.steps: replace 100 by" "mpiexec -n 4 espalier train filled.toml"
expect 0 "#   data.train: replace train.bin by your token files" head -n 8 filled.toml
expect 0 'cluster = "a100-80:1x4"' cat filled.toml
says 'preset = "gpt2-124m"'
expect 0 "wrote filled.toml" "${config[@]}" --set 'data.train=["a.bin","b.bin"]' run.steps=7 run.cluster=h100
! grep -q "fill in" out.txt || fail "nothing is left to fill in"
expect 0 'train = ["a.bin", "b.bin"]' cat filled.toml
says "steps = 7 " 'cluster = "h100"'
expect 0 "wrote filled.toml" "${config[@]}" --set run.matmul=cublaslt run.attention=cudnn run.steps=7  # in whatever build
for planned in parallel.tensor=2 model.num_layers=2 rotary.theta=100; do
  expect 2 "the plan decides this setting" "${config[@]}" --set "$planned"
done
expect 2 "a setting is given twice" "${config[@]}" --set run.steps=7 --set run.steps=8
expect 2 "a setting cannot be read" "${config[@]}" --set steps
for wrong in run.steps=abc run.steps=1.5 run.steps= run.steps=0 data.train=5 'data.train=[]' data.train=; do
  expect 2 "${wrong%%=*}" "${config[@]}" --set "$wrong"
done
expect 2 "has a problem" "${config[@]}" --set 'optimizer.learning_rate=[1'  # and no second one of what is not given
expect 2 "--set without --config" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --set run.steps=7
printf '[model]\npreset = "gpt2-124m"\n' >model.toml
model=("$espalier" plan --model model.toml --cluster a100-80)
expect 2 "--batch SEQUENCES" "${model[@]}"
expect 0 "gpt2-124m (0.1244 B parameters) on 8 devices" "${model[@]}" --batch 64
printf '[batch]\nglobal_batch_size = 32\nsequence_length = 512\n[parallel]\npipeline = 2\nrecompute_per_stage = ["full", "none"]\n' >>model.toml
expect 0 "32 sequences of 512 tokens" "${model[@]}"
expect 0 "64 sequences of 256 tokens" "${model[@]}" --batch 64 --sequence-length 256
printf '[data]\ntrain = ["own.bin"]\n[run]\ntokens = "1M"\n' >>model.toml
printf '[cluster]\npreset = "a100-80"\n' >one_node.toml
expect 0 "wrote own.toml" "$espalier" plan --model model.toml --cluster one_node.toml --config own.toml
! grep -q "fill in" out.txt || fail "the file has its data and its end"
expect 0 'train = ["own.bin"]' cat own.toml
says 'cluster = "one_node.toml"' 'recompute_per_stage = []'
expect 0 "run.cluster: one_node.toml has 8 devices, this layout 16" "$espalier" plan --model model.toml \
  --cluster one_node.toml --devices 16 --config own.toml
expect 0 "note: gpt2-124m learns 1024 positions; the plan uses 2048" "$espalier" plan --model gpt2-124m --cluster a100-80 \
  --batch 64 --sequence-length 2048 --config long.toml
expect 0 "max_sequence_length = 2048" cat long.toml
says "device_memory = 79456894976" "predicted: " # 80 GiB without the reserve
# Without learned positions a model has no longest sequence. What a file says of its precision is planned.
printf '[model]\npreset = "llama3-8b"\n[precision]\ncompute = "fp16"\n' >fp16.toml
expect 0 "ZeRO-3, fp16" "$espalier" plan --model fp16.toml --cluster a100-80:8 --batch 512 --sequence-length 16384 --config rotary.toml
expect 0 "max_sequence_length = 16384" cat rotary.toml
says 'compute = "fp16"'
expect 0 "note: a100-80 does not support fp8; planned without it" "$espalier" plan --model fp16.toml --cluster a100-80 \
  --batch 512 --sequence-length 2048 --precision bf16,fp8
expect 0 "\"ranking\"" "$espalier" plan --model llama3-8b --sequence-length 8192 --cluster h100:2 --batch 64 --json
expect 0 "estimated only" "$espalier" plan --model bloom-176b --sequence-length 2048 --cluster h100:32 --batch 64
expect 0 "the fastest of those that fit" "$espalier" plan --model gpt-200b --cluster a100-40:64 --batch 1024 --layout data=512 \
  --layout data=4,tensor=8,pipeline=16,recompute=full,zero=1
says "does not fit: stage 0 needs 3.3 TiB"
# A long layout goes on below its column.
expect 0 "recompute selective, ZeRO-0, sequence parallel" "$espalier" plan --model gpt-22b --cluster a100-80 --batch 512 \
  --layout tensor=2,pipeline=4,virtual_stages=6,recompute=selective,sequence_parallel=1 --layout tensor=8
! grep -q '.\{181\}' out.txt || fail "a line of more than 180 columns"
expect 0 "tensor 2 x data 4 x pipeline 1," "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --layout tensor=2
idle=("$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --layout data=8 --layout data=4)
expect 0 "note: layout 2 uses 4 of 8 devices" "${idle[@]}"
once "of 8 devices, the others stay idle"
"${idle[@]}" --json 2>notes.txt | python3 -c 'import json, sys; json.load(sys.stdin)' || fail "a note is inside the JSON"
expect 0 "layout 2 uses 4 of 8 devices" cat notes.txt
expect 0 "above 100 %: data_comm takes" "$espalier" plan --model gpt-22b --cluster a100-80 --batch 256 --scale 8,8,16,32
says "note: --scale names 8 twice; the curve has this point once" "GiB free"

# json FILE EXPRESSION: of the parsed FILE, j, the expression holds.
json() { python3 -c "import json, sys; j = json.load(open('$1')); sys.exit(0 if $2 else 1)" || fail "not so: $2" "$1"; }

# The first answer is one that train runs; what is not built yet stands in one line, or is marked where nothing else is left.
expect 0 "not possible yet: " "$espalier" plan --model gpt2-1558m --cluster h100 --batch 64 --precision bf16,fp8 --config built.toml
says "% faster; train does not compute in fp8 yet" "wrote built.toml"
[[ $(grep -c "not possible yet" out.txt) == 1 ]] || fail "what is not built yet is told more than once"
"$espalier" plan --model gpt2-1558m --cluster h100 --batch 64 --precision bf16,fp8 --json >built.json || fail "--json of a plan" built.json
json built.json 'j["changes"] and j["state_bytes"] > 0 and j["bottleneck"]["seconds"] > 0'
json built.json 'j["ranking"][0]["not_runnable"] == "" and j["not_built"]["gain"] > 0.005 and "fp8" in j["not_built"]["not_runnable"]'
expect 0 "note: no layout that train can run fits here" "$espalier" plan --model gpt2-1558m --cluster h100 --batch 64 --fix schedule=zero_bubble_v,pipeline=2
says "* estimated only: train has no schedule zero_bubble_v yet"
expect 2 "leave it out: espalier plan recommends what train runs" "$espalier" plan --model gpt2-1558m --cluster h100 --batch 64 --runnable
expect 0 "best for all" "$espalier" plan --model gpt-22b --cluster a100-80:4 --cluster h100:4 --batch 128 --config both.toml
expect 0 '"impossible": "it needs 16 devices' "$espalier" plan --model gpt-200b --cluster a100-80 --batch 64 --json --layout data=16 \
  --layout data=8
says '"too_large": "does not fit: stage 0' '"mfu"'
expect 0 '"plain_ideas"' "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --json
says "tensor parallelism alone"
expect 0 '"memory_by_stage"' "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --scale 4,8 --json
says '"efficiency"' '"points"'
expect 0 '"loss"' "$espalier" plan --model gpt-22b --cluster a100-80:4 --cluster h100:4 --batch 128 --config both.toml --json

expect 0 "fp16" "$espalier" plan --model gpt-22b --cluster a100-80:4 --cluster v100:4 --batch 128

# JSON has what was asked, what is free, the goals, and as many entries as --top says.
asked=("$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --json)
"${asked[@]}" --top 2 >top.json || fail "--top with --json is refused"
json top.json 'len(j["ranking"]) == 2 and len(j["rejections"]) == 2'
json top.json 'j["ranking"][0]["mfu"] > 0 and j["ranking"][0]["gemm_fraction"] is None'
json top.json 'j["devices"] == 8 and j["global_batch"] == 64 and j["sequence_length"] == 1024 and j["nodes"] == 1'
json top.json 'j["device_memory_bytes"] == 80 * 2**30 and j["free_bytes"] == 74 * 2**30 and j["goals"] == []'
json top.json 'all(each["step_interval"]["low"] < each["step_seconds"] < each["step_interval"]["high"] for each in j["ranking"])'
"${asked[@]}" >all.json
json all.json 'len(j["ranking"]) > 2 and len(j["rejections"]) > 2'
"${asked[@]}" --max-step-seconds 0.0001 >missed.json 2>error.txt
[[ $? == 2 ]] || fail "a goal that is missed ends with 2" error.txt
json missed.json 'not j["goals"][0]["met"] and j["goals"][0]["nearest"].startswith("--max-step-seconds") and j["ranking"]'
"${asked[@]}" --max-step-seconds 10 >met.json || fail "a goal that is met ends with 0" met.json
json met.json 'j["goals"][0]["met"] and j["goals"][0]["margin"] > 0.9'
"${asked[@]}" --scale 4,8 --min-tokens-per-second 1 >curve.json || fail "a goal with --scale" curve.json
json curve.json 'j["curve_goals"][0]["holds_from"] == 4 and [each["devices"] for each in j["points"]] == [4, 8] and j["free_bytes"] > 0'
"${asked[@]}" --scale 4,8 --memo curve.md >curve_memo.json || fail "--scale with --memo and --json" curve_memo.json
json curve_memo.json 'len(j["ranking"]) > 2 and [each["devices"] for each in j["points"]] == [4, 8] and j["points"][1]["efficiency"] > 0'
# A goal that the curve reaches, and the layout of the config does not: nothing is written.
json curve_memo.json 'j["points"][0]["step_seconds"] > 1.2 * j["points"][1]["step_seconds"]'
between=$(python3 -c 'import json; print(sum(p["step_seconds"] for p in json.load(open("curve_memo.json"))["points"]) / 2)')
expect 0 "" "${asked[@]}" --devices 4 --scale 4,8 --memo goal.md --max-step-seconds "$between"
expect 2 "--max-step-seconds" "${asked[@]}" --devices 4 --scale 4,8 --memo goal.md --max-step-seconds "$between" --config goal.toml
[[ ! -e goal.toml ]] || fail "a config that misses its goal was written" goal.toml
"${asked[@]}" --layout data=8 >layouts.json || fail "--layout --json" layouts.json
json layouts.json 'j["devices"] == 8 and len(j["layouts"]) == 1'

# A layout of the JSON is one for --layout, in its own words; where there is none, the JSON says why.
layout=$(python3 -c 'import json
layout = json.load(open("top.json"))["ranking"][0]["layout"]
del layout["global_batch"]
print(",".join(f"{key}={str(value).lower()}" for key, value in layout.items()))')
"${asked[@]}" --layout "$layout" >copied.json || fail "a layout of the JSON is refused: $layout" copied.json
json copied.json 'j["layouts"][0] == json.load(open("top.json"))["ranking"][0]'
large=("$espalier" plan --model gpt-1t --batch 8 --json)
refused() {  # refused FILE COMMAND...: ends with 2, an error and JSON
  "${@:2}" >"$1" 2>error.txt
  [[ $? == 2 ]] || fail "no layout ends with 2" error.txt
  grep -q "error:" error.txt || fail "no error is printed" error.txt
}
refused none.json "${large[@]}" --cluster a100-40 --top 3
json none.json 'j["ranking"] == [] and "fits" in j["no_layout"]["what"] and len(j["rejections"]) == 3 and j["plain_ideas"] and j["too_large"] > 0'
refused none.json "${asked[@]}" --layout data=7
json none.json '"is not divisible by" in j["layouts"][0]["impossible"]'
refused none.json "${large[@]}" --cluster a100-40 --scale 8,16
json none.json 'all("no layout" in point["limited_by"] for point in j["points"])'
refused none.json "${large[@]}" --cluster h100:64 --cluster v100:64 --devices 8
json none.json 'j["layout"] is None and all("no layout" in each["why_none"] for each in j["machines"]) and j["no_layout"]["where"] == "h100"'

# Goals along a curve and on several machines, and a memo for these.
curve=("$espalier" plan --model gpt-22b --cluster a100-80 --batch 256 --scale 8,16,32)
expect 0 "goal: a step of at most 30 s: holds from 16 devices on" "${curve[@]}" --max-step-seconds 30
expect 2 "no point of the curve is that fast" "${curve[@]}" --max-step-seconds 1
says "goal: a step of at most 1 s: holds at none of these; the best is" "on 32 devices"
apart=("$espalier" plan --model gpt-22b --cluster a100-80:4 --cluster h100:4 --batch 128)
expect 0 "h100 trains " "${apart[@]}" --max-step-seconds 3  # a cluster that meets it can be chosen
says "goal on h100: a step of at most 3 s: met" "goal on a100-80: a step of at most 3 s: missed"
both=("${apart[@]}" --config common.toml)
expect 0 "wrote both.md" "${both[@]}" --memo both.md
grep -q "The best layout for this machine alone" both.md || fail "the memo does not say what each machine loses" both.md
expect 2 "goal on h100: a step of at most 3 s: met" "${both[@]}" --max-step-seconds 3
says "goal on a100-80: a step of at most 3 s: missed" "where:  a100-80"
"${both[@]}" --json >both.json || fail "--json of several clusters" both.json
json both.json 'all(each["state_bytes"] > 0 and each["changes"] and each["bottleneck"] for each in j["machines"])'
json both.json 'j["devices"] == 32 and all(each["free_bytes"] > 0 for each in j["machines"])'

# An option that would change nothing is refused, and so is a question without an answer.
small=("$espalier" plan --model gpt2-124m --batch 64)
for option in "--scale 8,16" "--rehearse" "--layout data=8"; do
  expect 2 "${option%% *} with a second --cluster" "${small[@]}" --cluster a100-80 --cluster h100 $option
  says "do:     one --cluster at a time, with ${option%% *}"
done
expect 0 "note: its run.cluster is a100-80" "${small[@]}" --cluster a100-80 --cluster h100 --config common.toml
expect 0 'cluster = "a100-80:1x8"' cat common.toml
expect 0 "memory" "$espalier" train common.toml --dry-run --ranks 8
expect 0 "wrote set.toml" "${small[@]}" --cluster a100-80 --config set.toml \
  --set precision.gradient_reduction=compute run.steps=5
expect 0 "# not in this prediction: precision.gradient_reduction=compute" cat set.toml
expect 2 "emulation is not allowed in a config" "${small[@]}" --cluster a100-80 --config no.toml --set emulate.forward=0.1
expect 8 "cannot create a file" "${small[@]}" --cluster a100-80 --memo /proc/no.md
expect 2 "--config with --layout" "${small[@]}" --cluster a100-80 --layout data=8 --config no.toml
expect 2 "--memo with --layout" "${small[@]}" --cluster a100-80 --layout data=4,tensor=2 --memo no.md
says "--fix data=4,tensor=2 (which searches the rest) instead of --layout, with --memo"
expect 0 "wrote fixed.md" "${small[@]}" --cluster a100-80 --fix data=4,tensor=2 --memo fixed.md
grep -q "^| layout | tensor 2 x data 4" fixed.md || fail "--fix does not do what --layout with --memo is sent to" fixed.md
expect 2 "--config with --scale and no --memo" "${small[@]}" --cluster a100-80 --scale 8,16 --config no.toml
says "do:     --devices with one size instead of --scale, with --config"
expect 2 "--weak without --scale" "${small[@]}" --cluster a100-80 --weak
expect 2 "the number of replicas cannot be fixed" "${small[@]}" --cluster a100-80 --scale 8,16 --fix data=8
expect 2 "published_cases TABLE.csv" "${small[@]}" --cases "$root/tests/planning/published_rows.csv"
expect 0 "times as many tokens per second" "${small[@]}" --cluster a100-80:2 --cluster h100
expect 2 "a config is for one number of devices" "${small[@]}" --cluster a100-80:2 --cluster h100 --config no.toml

# What a run takes: days, device-hours, and what a cluster file prices.
printf '[cluster]\npreset = "a100-80"\nprice_per_device_hour = "2.50 EUR"\ndevice_power = "700 W"\n' >priced.toml
expect 0 "300B tokens are 4577637 steps: " "${small[@]}" --cluster priced.toml --tokens 300B
says " days (" " device-hours (" " EUR (" " kWh ("
"${small[@]}" --cluster priced.toml --tokens 2T --json --top 1 >run.json || fail "--tokens with --json" run.json
json run.json 'j["ranking"][0]["run"]["tokens"] == 2e12 and j["ranking"][0]["run"]["currency"] == "EUR"'
json run.json 'abs(j["ranking"][0]["run"]["cost"]["value"] / j["ranking"][0]["run"]["device_hours"]["value"] - 2.5) < 1e-9'
json run.json 'abs(j["ranking"][0]["run"]["energy_kwh"]["high"] / j["ranking"][0]["run"]["device_hours"]["high"] - 0.7) < 1e-9'
expect 0 "15T tokens are" "${small[@]}" --cluster priced.toml --tokens 15e12 --layout data=8
expect 0 "300B tokens are" "${small[@]}" --cluster a100-80 --tokens 300B --scale 4,8
expect 2 "cannot read the tokens of the run" "${small[@]}" --cluster a100-80 --tokens 3x
expect 0 "wrote tokens.toml" "${small[@]}" --cluster a100-80 --tokens 300B --config tokens.toml
expect 0 "tokens = 300000000000" cat tokens.toml

# Two clusters as one machine, over the link between them.
two=("$espalier" plan --model gpt-22b --cluster a100-80:2 --cluster h100:2 --batch 128)
expect 0 "one job across both clusters: " "${two[@]}" --link "100 Gb/s"
says "times as many as the faster cluster alone" "no job has run across two clusters"
"${two[@]}" --link "100 Gb/s" --json >joint.json || fail "--link with --json" joint.json
json joint.json 'sum(j["joint"]["layers"]) == 48 and j["joint"]["step_seconds"] > 0'
expect 0 "no job across both clusters was found: " "${small[@]}" --cluster a100-80:1x8 --cluster h100:1x9 --link "100 Gb/s"
expect 2 "cannot read the link" "${two[@]}" --link 100
expect 2 "without two of --cluster" "${small[@]}" --cluster a100-80 --link "100 Gb/s"

# The first line says nodes and devices, and what was not fitted is told.
expect 0 "on 16 devices: 2 nodes of 8 a100-40 with 40.00 GiB each" "${small[@]}" --cluster a100-40:2x8
expect 0 "Nothing was fitted to training runs on mi300a: its efficiency is that of mi300x." "${small[@]}" --cluster MI300A:2

# Where nothing fits there is a memo.
expect 2 "wrote large.md" "$espalier" plan --model gpt3-175b --cluster a100-80:2 --batch 64 --memo large.md
grep -q "The smallest such machine that fits has" large.md || fail "the memo does not say how many devices it takes" large.md
expect 2 "wrote large.md" "$espalier" plan --model gpt3-175b --cluster a100-80:2 --batch 64 --memo large.md
expect 0 "best for all" "${small[@]}" --cluster a100-80:2 --cluster h100 --devices 8 --config common.toml
# A memo of clusters where nothing fits says so; one of a curve is about the point where the goal holds.
expect 2 "wrote none.md" "$espalier" plan --model gpt-200b --cluster a100-40:4 --cluster v100:4 --batch 64 --memo none.md
expect 0 "it fits on 104 devices" cat none.md
says "No layout is possible on a100-40." "Memory is the limit." "times the free memory of all devices"
expect 0 "wrote curve.md" "$espalier" plan --model gpt-22b --cluster h100 --batch 512 --scale 8,16,32,64 \
  --min-tokens-per-second 50000 --memo curve.md
expect 0 "# How to train gpt-22b on 16 h100" head -1 curve.md
# Of 65 devices 64 are faster.
expect 0 "64 of these devices train" "$espalier" plan --model gpt3-13b --cluster h100:9 --devices 65 --batch 64
expect 0 "300B tokens are" "${small[@]}" --cluster a100-80 --tokens 300b
expect 2 "the smallest of" "$espalier" plan --model gpt-200b --cluster h100:64 --cluster v100:64 --devices 8 --batch 64
says "where:  h100"
expect 2 "no point of the curve has a layout" "$espalier" plan --model gpt-1t --cluster a100-40 --batch 64 --scale 8,16

# Nothing is chosen twice, and a message names the option that it is about.
expect 2 "--layout: tensor is given twice" "${small[@]}" --cluster a100-80 --layout tensor=8,tensor=4
says "got:    tensor=8 and tensor=4"
expect 2 "--fix: tensor is given twice" "${small[@]}" --cluster a100-80 --fix tensor=2 --fix tensor=4
expect 0 "tensor 2 x data 4 x pipeline 1" "${small[@]}" --cluster a100-80 --fix tensor=2 --fix data=4
expect 2 "--fix: unknown key" "${small[@]}" --cluster a100-80 --fix tensr=2
expect 2 "change tensor=x in --fix" "${small[@]}" --cluster a100-80 --fix tensor=x
expect 2 "a choice is both fixed and open" "${small[@]}" --cluster a100-80 --precision bf16,fp16 --fix precision=fp32
expect 2 "a layout has one precision" "${small[@]}" --cluster a100-80 --precision bf16,fp16 --layout data=8
expect 2 "--batch is given 2 times, wanted once" "${small[@]}" --cluster a100-80 --batch 32
expect 2 "--model has no value" "$espalier" plan --model
expect 2 'got:    --fix ""' "${small[@]}" --cluster a100-80 --fix ""
expect 2 'got:    --cluster ""' "${small[@]}" --cluster ""
expect 2 "got 64.5, wanted 1 to 16777216, a whole number" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64.5

expect 0 "note: a100-80:4 has 32 devices; planned with 64 on 8 nodes" "${small[@]}" --cluster a100-80:4 --devices 64
expect 2 "do:     lower --reserve-gib" "${small[@]}" --cluster a100-80 --reserve-gib 100
expect 0 "It uses 4 devices instead of 8" "${small[@]}" --cluster a100-80 --layout data=8 --layout data=4

# Bad input: exit code 2, what was given, what is wanted.
expect 2 "did you mean gpt3-175b" "$espalier" plan --model gpt3-157b --cluster a100-80 --batch 8
expect 2 "unknown cluster" "$espalier" plan --model gpt3-175b --cluster b100 --batch 8
expect 2 "--batch" "$espalier" plan --model gpt3-175b --cluster a100-80
expect 2 "the smallest of" "$espalier" plan --model gpt-1t --cluster a100-40 --batch 8
says "not chosen" "does not fit: stage 0 needs"
expect 2 "the best is" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --max-step-seconds 0.0001
expect 2 "wrote missed.md" "${small[@]}" --cluster a100-80 --max-step-seconds 0.0001 --memo missed.md
grep -q "A step of at most 0.0001 s: missed by" missed.md || fail "the memo does not say that the goal is missed" missed.md
expect 0 "wrote met.md" "${small[@]}" --cluster a100-80 --max-step-seconds 10 --memo met.md
grep -q "A step of at most 10 s: met with" met.md || fail "the memo does not say that the goal is met" met.md
expect 2 "fixed degrees that do not divide" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --fix tensor=5
says "--fix tensor=4"
expect 2 "--batch 6 or 8" "$espalier" plan --model gpt2-124m --cluster a100-80:8 --batch 7
expect 2 "(nearest: tensor 4 or 6, num_heads" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --layout tensor=5
expect 2 "a100-80 does not support fp8" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --precision fp8
expect 0 "it needs 16 devices, the machine has 8" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --layout data=16 --layout data=8
expect 2 "it needs 16 devices, the machine has 8" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --layout data=16
expect 2 "did you mean tensor" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 64 --layout tensr=2
printf '[cluster]\npreset = "a100-80"\n[node_link]\nbandwidth = "300"\n[network_link]\nlatency = "5 s"\n' >bad.toml
expect 2 "bad.toml:4" "$espalier" plan --model gpt2-124m --cluster bad.toml --batch 64
says "node_link.bandwidth" "network_link.latency" "did you mean 5 us?" "docs/planner.md"
! grep -q -- "--keys" out.txt || fail "a cluster file has not the keys of train"
printf '[cluster]\npreset = "a100-80"\n[device]\nmemory = 80\n' >bad.toml
expect 2 "bad.toml:4:10: device.memory: got 80 (an integer), wanted bytes with a unit" "$espalier" plan --model gpt2-124m \
  --cluster bad.toml --batch 64
once "device.memory"
printf '[cluster]\nmemory = 80 GiB\n' >bad.toml
expect 2 "got:    memory = 80 GiB" "$espalier" plan --model gpt2-124m --cluster bad.toml --batch 64
says "the cluster file is not valid TOML" "where:  bad.toml:2:13"
expect 2 "did you mean a100-40?" "$espalier" plan --model gpt2-124m --cluster a100 --batch 64
expect 2 "whole numbers from 1" "$espalier" plan --model gpt2-124m --cluster a100-80:0 --batch 64
expect 2 "536870912 nodes of 8 are 4294967296 devices: at most 16777216" "$espalier" plan --model gpt2-124m --batch 64 \
  --cluster a100-80:536870912
expect 2 "for example --batch 1536" "$espalier" plan --model gpt3-175b --cluster a100-80
expect 2 "for example --sequence-length 4096" "$espalier" plan --model llama3-8b --cluster a100-80 --batch 8
expect 2 "no config: train has no model with ALiBi yet" "$espalier" plan --model bloom-176b --sequence-length 2048 \
  --cluster h100:32 --batch 64 --config no.toml
says 'a preset with model.position = "alibi"' "do:     choose another model, such as gpt3-175b; or leave out --config"
! grep -q rotary out.txt || fail "the positions of a preset cannot be changed"
printf '[model]\npreset = "gpt2-124m"\nposition = "alibi"\n' >keys.toml
expect 2 "train has no model with ALiBi yet" "$espalier" plan --model keys.toml --sequence-length 1024 --cluster a100-80 \
  --batch 64 --config no.toml
says 'got:    model.position = "alibi"' 'wanted: model.position = "rotary" or "learned"' "where:  keys.toml" \
  "change these keys of [model]"
expect 2 "this layout cannot be rehearsed" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 8 \
  --layout context=2,data=4 --rehearse refused
says "train has no context parallelism yet"
expect 2 "this layout is impossible" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 14 \
  --layout pipeline=7,virtual_stages=2
says "pipeline 7 x virtual_stages 2 = 14 parts are more than num_layers 12"
summary
