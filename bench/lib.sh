# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Functions that the scripts in bench/ share, beside those of ci/lib.sh; to be sourced.

caller=$PWD
source "$(dirname "${BASH_SOURCE[0]}")/../ci/lib.sh"
root=$PWD

# find_programs [ESPALIER [MPIEXEC]]: --help and what is unknown end the script; sets espalier and mpiexec.
find_programs() {
  case ${1:-} in
    -h | --help) usage; exit 0 ;;
    -*) refuse_argument "$1" "bench/${0##*/} --help" ;;
  esac
  espalier=$(cd "$caller" && realpath "${1:-$root/build/espalier}")
  [[ -x $espalier ]] || fail "$espalier is missing" "ci/build --target espalier" 2
  mpiexec=${2:-$(command -v mpiexec.mpich || echo mpiexec)}
  if [[ $mpiexec == */* ]]; then mpiexec=$(cd "$caller" && realpath -s "$mpiexec"); fi  # a link may choose by its name
}

# enter_scratch [DIRECTORY]: goes into a folder of its own below it, which is removed at the end.
enter_scratch() {
  work=$(cd "$caller" && realpath "$(mktemp -d ${1:+-p "$1"})")
  trap 'rm -rf "$work"' EXIT
  cd "$work"
}

# train.bin: numbers one after the other, as bytes.
pack_numbers() {
  seq 20000 >text.txt
  "$espalier" data pack --output train.bin text.txt >/dev/null
}
