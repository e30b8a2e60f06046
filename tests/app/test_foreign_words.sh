#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Names, values and files that are not as the command would have them: shown harmlessly, refused with what to write, left
# alone: test_foreign_words.sh ESPALIER.
espalier=$1
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

# harmless: the last output has no control character but newline and tab, and is UTF-8.
harmless() {
  ! LC_ALL=C grep -qP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]' out.txt || fail "a control character is sent"
  iconv -f UTF-8 -t UTF-8 out.txt >/dev/null 2>&1 || fail "the output is not UTF-8"
}
# ends CODES COMMAND...: with one of these exit codes.
ends() {
  local codes=$1 got=0; shift
  "$@" >out.txt 2>&1 || got=$?
  [[ " $codes " == *" $got "* ]] || fail "exit code $got, wanted one of $codes: $*"
}
exits 0 "$espalier" train tiny.toml

# Control characters, bytes that are no UTF-8 and lines that forge a report, in whatever is named.
evil=$'\e]0;x\a\e[2J\rcaf\xe9\xe2\x80\xae\n  do:     rm -rf'
for asked in "train @" "train tiny.toml run.steps=@" "train tiny.toml @=1" "train tiny.toml run.@=1" "train --@" "@" \
  "data inspect @" "data pack --output x.bin @" "checkpoint inspect @" "checkpoint verify @" "diagnose @" "report @" \
  "plan --model @" "plan --model gpt2-124m --cluster @ --batch 8" "generate --checkpoint @" "bench step @" \
  "train tiny.toml run.directory=new --resume @" "train tiny.toml run.directory=new --init-from @" "train --replay @"; do
  read -r -a words <<<"$asked"
  ends "2 3 4" "$espalier" "${words[@]//@/$evil}"
  harmless
  [[ $(grep -c '^  do: ' out.txt) -le 1 ]] || fail "a name passes for a line of the report: $asked"
done

mkdir "$evil"
printf 'steps\e[31m = 1\n' >"$evil/bad.toml"
expect 2 "bad.toml" "$espalier" train "$evil/bad.toml"
harmless
cp -r run "$evil/run"
sed -i 's/"cause": ""/"cause": "\\u001b[2J\\u009b\\u202e"/' "$evil/run/run.json"
for command in diagnose report "checkpoint inspect" "checkpoint verify" "diagnose --json"; do
  exits 0 "$espalier" $command "$evil/run"
  harmless
done
exits 0 "$espalier" data pack --output "$evil/t.bin" text.txt
harmless
printf 'a\e[2Jb\n' >escape.txt
exits 0 "$espalier" data pack --output escape.bin escape.txt
exits 0 "$espalier" data inspect escape.bin
harmless
says 'as text     a\x1b[2Jb\n'

# A model's text: harmless on a terminal, the bytes themselves in a pipe.
SHELL=/bin/sh script -qec "'$espalier' generate --checkpoint run --prompt '"$'a\e[2J'"' --max-tokens 1" /dev/null >terminal.txt </dev/null
grep -qF 'a\x1b[2J' terminal.txt || fail "a terminal is sent control characters" terminal.txt
"$espalier" generate --checkpoint run --prompt $'a\e[2J' --max-tokens 1 | LC_ALL=C grep -qF $'a\e[2J' || fail "a pipe gets other bytes"

# JSON is always valid; what must be read back is refused before anything is made.
latin=$'caf\xe9'
cp tiny.toml "$latin.toml"
"$espalier" plan --model "$latin.toml" --cluster a100-80 --json >plan.json || fail "plan --json with a Latin-1 name" plan.json
python3 -m json.tool plan.json >/dev/null || fail "plan --json is not valid" plan.json
for setting in "run.directory=r/$latin" "data.train=[\"$latin\"]" "run.cluster=$latin.toml"; do
  expect 2 "not UTF-8" "$espalier" train tiny.toml "$setting"
  harmless
done
[[ ! -e r ]] || fail "a refused start makes its directory"
expect 2 "not UTF-8" "$espalier" plan --model tiny.toml --cluster a100-80 --config new.toml --set "run.directory=$latin"
expect 2 "not UTF-8" "$espalier" plan --model tiny.toml --cluster a100-80 --devices 2 --rehearse "$latin"

# Settings as people write them elsewhere.
expect 2 "wanted: run.steps=5" "$espalier" train tiny.toml --run.steps=5
expect 2 "wanted: run.steps=5" "$espalier" train tiny.toml --run.steps 5
expect 2 "'data.train=[\"train.bin\"]'" "$espalier" train tiny.toml 'data.train=[train.bin]'
expect 2 "'run.directory=\"a\"'" "$espalier" plan --model tiny.toml --cluster a100-80 --config new.toml --set 'run.directory="a'
exits 0 "$espalier" train tiny.toml --dry-run 'run.directory="r/c#b"'
exits 0 "$espalier" plan --model tiny.toml --cluster a100-80 --config new.toml --set 'run.directory="r/c#b"'
expect 0 'directory = "r/c#b"' cat new.toml

expect 2 "write 0.001" "$espalier" train tiny.toml optimizer.learning_rate=0,001
expect 0 "names train.bin 2 times" "$espalier" train tiny.toml run.directory=twice run.steps=1 'data.train=["train.bin", "train.bin"]'
expect 2 "is named -" "$espalier" report run --output -

# Home.
mkdir home
HOME=$work/home expect 0 "wrote $work/home/x.html" "$espalier" report run --output='~/x.html'
HOME=$work/home expect 0 "" "$espalier" train tiny.toml run.directory='~/r' run.steps=1
HOME=$work/home expect 2 "cannot be a run directory" "$espalier" train tiny.toml run.directory='~'
expect 2 "cannot be a run directory" "$espalier" train tiny.toml run.directory=/
expect 2 "cannot be a run directory" "$espalier" train tiny.toml run.directory=/tmp
expect 2 "written into a folder" "$espalier" verify tiny.toml --save tiny.toml
[[ -d home/r && ! -e '~' ]] || fail "~ is not the home directory"
expect 2 "only a shell replaces" "$espalier" report run --output='$HOME/x.html'
expect 2 "let the shell replace it" "$espalier" train tiny.toml run.directory='$HOME/r'
expect 2 "a zero byte" "$espalier" train tiny.toml 'run.directory="a\u0000b"'
expect 2 "another user" "$espalier" report run --output='~nobody/x.html'
HOME= expect 2 "HOME" "$espalier" report run --output='~/x.html'

# Outputs: whatever is somebody's stays as it is, also behind a link; our own is replaced.
outputs() {  # PATH: commands that would write it
  printf '%s\n' "plan --model tiny.toml --cluster a100-80 --config $1" "plan --model tiny.toml --cluster a100-80 --memo $1" \
    "bench machine --output $1" "report run --output $1" "data pack --output $1 text.txt"
}
echo "this is mine" >mine
ln -s mine link
for name in mine link; do
  while read -r -a words; do
    exits 8 "$espalier" "${words[@]}"
    says "$name"
    [[ $(cat mine) == "this is mine" && -L link ]] || fail "replaced: ${words[*]}"
  done < <(outputs $name)
done
expect 8 "did not write" "$espalier" plan --model tiny.toml --cluster a100-80 --config tiny.toml
ln -s there.toml to_there.toml
for name in again.toml again.toml to_there.toml; do
  exits 0 "$espalier" plan --model tiny.toml --cluster a100-80 --config "$name"
done
[[ -L to_there.toml && -s there.toml ]] || fail "a link is not followed"
mkdir foreign && touch foreign/rehearsal.toml foreign/tokens.bin
expect 2 "has files that no rehearsal wrote" "$espalier" plan --model tiny.toml --cluster a100-80 --devices 2 --rehearse foreign

# Two packs into one output: the second is told, while another process has it; a killed one leaves nothing in the way.
exec 9>big.bin.partial
flock 9
expect 8 "another process is writing this file" "$espalier" data pack --output big.bin text.txt
exec 9>&-
cp text.txt large.txt
for i in {1..10}; do cat large.txt large.txt >larger.txt && mv larger.txt large.txt; done
for ((try = 0; try < 5; try++)); do  # it may be done before
  rm -f big.bin
  "$espalier" data pack --output big.bin large.txt >/dev/null 2>&1 &
  for ((i = 0; i < 600; i++)); do [[ -s big.bin.partial || -e big.bin ]] && break; sleep 0.02; done
  kill -KILL $! 2>/dev/null
  wait $! 2>/dev/null && continue
  [[ -e big.bin.partial ]] && break
done
[[ -e big.bin.partial ]] || fail "no pack was killed"
expect 0 "big.bin" "$espalier" data pack --output big.bin text.txt
[[ ! -e big.bin.partial ]] || fail "a .partial is left"
rm large.txt

# What the system refuses is no defect of ours.
TMPDIR=/nonexistent expect 2 "set TMPDIR" "$espalier" bench step --model byte-1m --steps 1
TMPDIR=/proc ends "2 8" "$espalier" bench step --model byte-1m --steps 1
mkdir gone
for asked in "train tiny.toml" "report run" "data pack --output x.bin x.txt" "checkpoint inspect run" \
  "plan --model gpt2-124m --cluster a100-80 --batch 8 --config x.toml" "train tiny.toml --dry-run"; do
  ends "0 2 3 4 8" bash -c "mkdir -p '$work/gone' && cd '$work/gone' && rmdir '$work/gone' && '$espalier' $asked"
done
absolute="$work/tiny.toml data.train=$work/train.bin"
ends "2 8" bash -c "mkdir -p gone && cd gone && rmdir ../gone && '$espalier' train $absolute run.directory=r"
ends "2" bash -c "'$espalier' train $(printf 'a%.0s' {1..5000})=1"
for closed in ">&-" "2>&-" "<&-" ">&- 2>&- <&-"; do
  ends "0 8" bash -c "'$espalier' data pack --output closed.bin text.txt $closed"
  cmp -s closed.bin train.bin || fail "what is printed gets into a file: $closed"
  ends "0 8" bash -c "'$espalier' train tiny.toml run.directory=closed run.steps=1 $closed"
done
summary
