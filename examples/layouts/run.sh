#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Trains ten steps in every layout of this folder and compares the losses with those of one rank.
#   examples/layouts/run.sh [ESPALIER [MPIEXEC [ITS OPTION...]]]    writes runs/layouts below the current folder
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '4,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "${0##*/}: error: unknown argument: $1" >&2; exit 2 ;;
esac
here=$(dirname "$(realpath "$0")")
espalier=${1:-build/espalier} mpiexec=${2:-$(command -v mpiexec.mpich || echo mpiexec)} mpiexec_options=("${@:3}")
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
tolerance=1e-3  # relative; what is left when CPU or GEMM library differ is rounding

mark=runs/layouts/.made_by_run_sh
if [[ -e runs/layouts && ! -e $mark ]]; then
  echo "${0##*/}: error: runs/layouts was not made by this script; move it away, or start in another folder" >&2
  exit 2
fi
rm -rf runs/layouts
mkdir -p runs/layouts
touch "$mark"
for number in $(seq 300); do
  echo "Tree $number grows along the lattice, branch $((number * 7 % 13)) on wire $((number * 5 % 11))."
done >runs/layouts/text.txt
"$espalier" data pack --output runs/layouts/train.bin runs/layouts/text.txt >/dev/null

failures=0
printf '%-16s %5s  %11s  %11s  %s\n' layout ranks 'first loss' 'last loss' 'largest difference'
for layout in one_rank data zero1 tensor tensor_sequence sequential gpipe 1f1b interleaved zero_bubble hybrid; do
  config=$here/$layout.toml
  ranks=$(sed -n 's/^#.*mpiexec -n \([0-9]*\) .*/\1/p' "$config")
  if ! "$mpiexec" -n "$ranks" "${mpiexec_options[@]}" "$espalier" train "$config" >runs/layouts/out.txt 2>&1; then
    echo "$layout failed:"; sed 's/^/  | /' runs/layouts/out.txt; failures=$((failures + 1)); continue
  fi
  sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([^,]*\),.*/\1 \2/p' "runs/layouts/$layout/metrics.jsonl" |
    paste "$here/expected_losses.txt" - |
    awk -v layout="$layout" -v ranks="$ranks" -v tolerance="$tolerance" '
      { difference = $2 > $4 ? ($2 - $4) / $2 : ($4 - $2) / $2  # columns: step, expected, step, got
        if ($1 != $3) difference = 1
        if (NR == 1) first = $4
        if (!(difference <= largest)) largest = difference
        last = $4 }
      END { good = NR == 10 && last > 0 && largest <= tolerance
            printf "%-16s %5d  %11.4f  %11.4f  %s\n", layout, ranks, first, last,
                   good ? "below " tolerance : largest " OVER " tolerance
            exit !good }' || failures=$((failures + 1))
done
((failures == 0)) || { echo "$failures layouts do not train the model of one rank"; exit 1; }
echo "every layout trained the model of one rank"
