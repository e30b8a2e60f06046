#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Imports and exports onto a disk that is full, over quota or broken, at each operation: nothing half-written is left. Killed ones
# leave OUTPUT.espalier.partial, which the next one replaces.
# test_hugging_face_disk.sh ESPALIER FAULTS
espalier=$1 faults=$2
source "$(dirname "$(realpath "$0")")/run_faults.sh"
errors=(ENOSPC EDQUOT EIO) numbers=(28 122 5)

# failing OUTPUT STRIDE COMMAND...: again and again, an operation under OUTPUT fails, one later than before; of the many writes
# into a checkpoint every STRIDEth is one. The command ends with 8, the path and the error, and leaves nothing; or with 0, and
# the failure did no harm.
failing() {
  local output=$1 stride=$2 at=1 got what error refused=0; shift 2
  while ((failures < 10)); do
    error=$((at % 3)) got=0
    ESPALIER_FAULT_STRIDE=$stride with_fault "${errors[error]}" 0 "$at" "$output" "$output" timeout 60 "$@" >out.txt 2>&1 || got=$?
    [[ -e struck.txt ]] || break
    what="${errors[error]} at operation $at: $(head -n 1 struck.txt)"
    if ((got == 8)); then
      refused=$((refused + 1))
      says "$output" "(errno ${numbers[error]})"
      [[ ! -e ${output%%/*} && ! -e $output.espalier.partial ]] || fail "something is left after $what" <(ls -RA .)
    elif ((got == 0)); then
      echo "no harm by $what"
    else
      fail "exit code $got, wanted 8, after $what"
    fi
    rm -rf "${output%%/*}"
    at=$((at + 1))
  done
  [[ $got == 0 ]] || fail "exit code $got without a fault"
  echo "$output: $refused faults refused"
  ((refused > 20)) || fail "only $refused faults were refused"
  rm -rf "${output%%/*}"
}

# killed OUTPUT STRIDE WANTED COMMAND...: again and again, killed some operations later than before. OUTPUT is then WANTED or not
# there, and the next try makes it.
killed() {
  local output=$1 stride=$2 wanted=$3 at=1 got what partial=0; shift 3
  while ((failures < 10)); do
    got=0
    ESPALIER_FAULT_STRIDE=$stride with_fault kill 0 "$at" "$output" "$output" timeout 60 "$@" >out.txt 2>&1 || got=$?
    [[ -e struck.txt ]] || break
    what="a kill at operation $at: $(head -n 1 struck.txt)"
    ((got == 137)) || fail "exit code $got, wanted 137, by $what"
    [[ ! -e $output.espalier.partial ]] || partial=$((partial + 1))
    if [[ -e $output ]]; then
      diff -r "$wanted" "$output" >difference.txt || fail "half-written after $what" difference.txt
      rm -r "$output"
    fi
    expect 0 "wrote $output" "$@"
    diff -r "$wanted" "$output" >difference.txt || fail "another result after $what" difference.txt
    [[ -z $(compgen -G "$output.*") ]] || fail "something is left by the try after $what" <(ls -A)
    rm -rf "$output"
    at=$((at + 5))
  done
  [[ $got == 0 ]] || fail "exit code $got without a fault"
  echo "$output: $partial kills left an unfinished directory"
  ((partial > 5)) || fail "only $partial kills left an unfinished directory"
  rm -rf "$output"
}

exits 0 "$espalier" train tiny.toml model.num_layers=1
exits 0 "$espalier" checkpoint export run --output model
echo '{}' >model/tokenizer.json
exits 0 "$espalier" checkpoint import model --output imported
failing exported 1 "$espalier" checkpoint export imported --output exported
failing deep/er/exported 1 "$espalier" checkpoint export imported --output deep/er/exported --shard-size "10 kB"
failing again 3 "$espalier" checkpoint import model --output again
exits 0 "$espalier" checkpoint export imported --output exported
exits 0 "$espalier" checkpoint import model --output again
mv exported wanted_export; mv again wanted_import
killed exported 1 wanted_export "$espalier" checkpoint export imported --output exported
killed again 9 wanted_import "$espalier" checkpoint import model --output again
# A limit that stays, as on a full disk: it strikes at the first large file.
for command in "export imported" "import model"; do
  (failures=0; ulimit -f 16; trap '' XFSZ; expect 8 "refused" "$espalier" checkpoint $command --output refused; exit $failures) ||
    failures=$((failures + 1))
  [[ ! -e refused ]] || fail "something is left after $command" <(ls -RA refused)
done
# A folder that was there stays, empty.
mkdir kept
(failures=0; ulimit -f 16; trap '' XFSZ; expect 8 "kept" "$espalier" checkpoint import model --output kept; exit $failures) ||
  failures=$((failures + 1))
[[ -d kept && -z $(ls -A kept) && ! -e kept.espalier.partial ]] || fail "a folder that was there is gone, or holds something" <(ls -RA kept)
# A disk of so many KiB that is full before the first tensor, or in the midst of them.
if unshare -m true 2>/dev/null; then
  mkdir disk
  onto_disk() { unshare -m bash -c 'mount -t tmpfs -o size="$0k" tmpfs disk && { "$@"; code=$?; ls -A disk >left.txt; exit $code; }' "$@"; }
  # full KIB TEXT COMMAND...: ends with this text, and leaves nothing.
  full() {
    local kib=$1 text=$2; shift 2
    expect 8 "$text" onto_disk "$kib" "$espalier" checkpoint "$@" --output disk/refused
    says "disk/refused"
    [[ ! -s left.txt ]] || fail "something is left on a full disk" left.txt
  }
  full 40 "no space for a checkpoint" import model
  full 40 "no space for the weights" export imported
  full 80 "(errno 28)" import model
  full 72 "(errno 28)" export imported
else
  echo "skipped: a full tmpfs (unshare -m is not allowed here)"
fi
summary
