#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# What the program says of itself: help, man page, completion, version, and words of other programs.
# test_help.sh ESPALIER SOURCE_DIR
espalier=$1 source=$2
script=$(realpath "$0")
source "$(dirname "$script")/checks.sh"

# ---- Help: two ways to ask, one answer, in 80 columns and without the parser's own notation ----
mapfile -t commands < <("$espalier" help --man | sed -n 's/\\-/-/g; s/^\.SS espalier //p')
((${#commands[@]} >= 18)) || fail "the man page has only ${#commands[@]} commands" <("$espalier" help --man)
for command in "" "${commands[@]}"; do
  expect 0 "Usage: espalier" "$espalier" $command --help
  mv out.txt asked.txt
  expect 0 "Usage: espalier" "$espalier" help $command
  cmp -s out.txt asked.txt || fail "espalier help $command is not espalier $command --help"
  ! grep -qE '^.{81}|Excludes|Needs|[{}]|FLOAT in|^Usage: /' out.txt || fail "the help of espalier $command is garbled"
done
expect 2 "did you mean train?" "$espalier" help trian
expect 2 "did you mean" "$espalier" hlep

# ---- Completion knows every command and every option; of an option with choices, those ----
"$espalier" completion bash >completion.sh
bash -n completion.sh || fail "the completion for bash is no script" completion.sh
source ./completion.sh
# completes WORDS...: what bash would offer for the last of them.
completes() {
  COMP_WORDS=(espalier "$@") COMP_CWORD=$#
  _espalier
  printf '%s\n' "${COMPREPLY[@]}" | sort
}
options=0
for command in "" "${commands[@]}"; do
  "$espalier" $command --help >out.txt
  sed -nE 's/^  (-[^ ]+).*/\1/p' out.txt | tr ',' '\n' | sort >wanted.txt
  completes $command - >got.txt
  diff wanted.txt got.txt >difference.txt || fail "options of espalier $command: --help (<), completion (>)" difference.txt
  options=$((options + $(wc -l <wanted.txt)))
  sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' out.txt | sort >wanted.txt
  [[ -s wanted.txt ]] || continue
  completes $command "" | grep -v '^-' >got.txt
  diff wanted.txt got.txt >difference.txt || fail "commands of espalier $command: --help (<), completion (>)" difference.txt
done
((options > 80)) || fail "only $options options were compared"
[[ $(completes verify --precision f | tr '\n' ' ') == "fp16 fp32 fp64 " ]] || fail "verify --precision f completes to $(completes verify --precision f)"
[[ $(completes data conv) == convert && $(completes train --dry) == --dry-run ]] || fail "a begun word is not completed"
"$espalier" completion zsh >_espalier
if command -v zsh >/dev/null; then
  zsh -n _espalier || fail "the completion for zsh is no script" _espalier
fi
for word in "'train:" "'pack:" "'--init-from:" "'--against:"; do
  grep -qF -- "$word" _espalier || fail "the completion for zsh does not know $word" _espalier
done
expect 2 "bash,zsh" "$espalier" completion fish

# ---- The man page is shown without a warning ----
"$espalier" help --man >espalier.1
if command -v man >/dev/null && command -v groff >/dev/null; then
  LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z espalier.1 2>out.txt >/dev/null
  [[ ! -s out.txt ]] || fail "man warns"
  MANWIDTH=80 man -l espalier.1 2>/dev/null | col -b >out.txt
  says "espalier data pack" "--validation-fraction" "EXIT STATUS"
fi

# ---- Choices: --keys (which docs/config.md repeats) lists what the config takes ----
"$espalier" train --keys >keys.txt
printf '[data]\ntrain = ["none.bin"]\n' >choices.toml
found=0
while IFS='|' read -r section key list; do
  found=$((found + 1))
  expect 2 "$section.$key" "$espalier" train choices.toml --dry-run "$section.$key=no_such"
  tr -d '"' <out.txt >listed.txt
  grep -qF -- "$list" listed.txt || fail "--keys lists $list for $section.$key, the config takes others"
done < <(awk '/^\[/ { section = substr($1, 2, length($1) - 2) }
              match($0, /\([a-z0-9_.-]+(, [a-z0-9_.-]+)+\)$/) { print section "|" $1 "|" substr($0, RSTART + 1, RLENGTH - 2) }' keys.txt)
((found == 17)) || fail "$found keys list their choices, wanted 17" keys.txt

# ---- What people write elsewhere ----
expect 2 "espalier data pack" "$espalier" import weights.bin
expect 2 "espalier data pack" "$espalier" tokenize text.txt
expect 2 "run.steps=5" "$espalier" train choices.toml --steps=5
expect 2 "run.steps=" "$espalier" train choices.toml --max-steps 5
expect 2 "optimizer.learning_rate=1e-3" "$espalier" train choices.toml --lr=1e-3
expect 2 "optimizer.weight_decay=" "$espalier" train choices.toml --weight-decay 0.1
expect 2 "run.steps=5" "$espalier" train choices.toml --run.steps=5
expect 2 "espalier train CONFIG.toml" "$espalier" train --config choices.toml
expect 2 "mpiexec -n" "$espalier" train choices.toml --nproc-per-node 4
expect 2 "did you mean --checkpoint" "$espalier" generate --chekpoint run
expect 2 "did you mean --resume?" "$espalier" train --resum auto
expect 2 "unknown option" "$espalier" -v
expect 2 "a value after the '='" "$espalier" data pack --output= text.txt
expect 2 "an option has no value" "$espalier" verify choices.toml --save ''
expect 2 "an option has no value" "$espalier" bench machine --output ''

# ---- The version names a commit of ours, that of now, or none ----
revision() {
  cmake -DSOURCE="$1" -DVERSION=1.2 -DOUTPUT="$work/revision.hpp" -P "$source/cmake/EspalierRevision.cmake" >/dev/null
  sed -n 's/#define ESPALIER_REVISION "\(.*\)"/\1/p' revision.hpp
}
if command -v git >/dev/null; then
  commit() { git -C outer -c user.name=n -c user.email=e commit -q --allow-empty -m "$1"; git -C outer rev-parse --short HEAD; }
  mkdir -p tarball outer/inner
  git init -q outer
  [[ $(revision "$work/tarball") == "" ]] || fail "a tarball has the commit $(revision "$work/tarball")" revision.hpp
  for text in first second; do
    now=$(commit "$text")
    [[ $(revision "$work/outer") == "$now" ]] || fail "the commit is not $now" revision.hpp
  done
  [[ $(revision "$work/outer/inner") == "" ]] || fail "inside another repository, its commit is taken for ours" revision.hpp
fi
exits 0 "$espalier" --version
! grep -q '()' out.txt || fail "an empty commit is shown"
summary
