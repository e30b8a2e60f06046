#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# test_scripts.sh ROOT: every script says what it is for (--help, exit code 0) and refuses an argument that it does not know
# (exit code 2), both before it does anything: in a copy of the scripts alone, with what a quickstart left behind.
set -uo pipefail
root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; sed 's/^/  | /' "$work/out.txt"; failures=$((failures + 1)); }

mkdir -p "$work/tree/examples" "$work/tree/bench" "$work/tree/runs/quickstart" "$work/tree/runs/layouts"
cp -r "$root/ci" "$work/tree"
cp -r "$root/examples/layouts" "$work/tree/examples"
cp "$root"/bench/*.sh "$root"/bench/{compare_pytorch,profile_step,real_model} "$work/tree/bench"
touch "$work/tree/runs/quickstart/.made_by_ci_quickstart" "$work/tree/runs/layouts/text.txt"
export ESPALIER_CACHE=$work/tree/cache
cd "$work/tree" || exit 1
listing() { find . -not -name '*.pyc' -not -name __pycache__ | sort; }
before=$(listing)

count=0
for script in ci/* examples/layouts/run.sh bench/*; do
  [[ -x $script ]] || continue
  count=$((count + 1))
  status=0; timeout 30 "$script" --help >"$work/out.txt" 2>&1 || status=$?
  [[ $status == 0 ]] || fail "$script --help: exit code $status, wanted 0"
  grep -q "${script##*/}" "$work/out.txt" || fail "$script --help does not say how it is called"
  status=0; timeout 30 "$script" --nonsense >"$work/out.txt" 2>&1 || status=$?
  [[ $status == 2 ]] || fail "$script --nonsense: exit code $status, wanted 2"
  grep -q -- --nonsense "$work/out.txt" || fail "$script --nonsense does not name the argument"
  [[ $(listing) == "$before" ]] || fail "$script did something: $(diff <(echo "$before") <(listing))"
done
((count >= 10)) || fail "found only $count scripts"
(cd ci && ./test --help) >"$work/out.txt" 2>&1
grep -q -- --all "$work/out.txt" || fail "ci/test --help from another folder"

# What fails for all parts is said once, and the parts that need it are failed.
printf '#!/bin/sh\necho "missing packages: sand, lime"\nexit 2\n' >ci/deps
ci/test ctest install >"$work/out.txt" 2>&1 && fail "ci/test passed without its dependencies"
[[ $(grep -c "missing packages" "$work/out.txt") == 1 ]] || fail "the missing packages stand there more than once, or never"
grep -q "2 failed" "$work/out.txt" || fail "both parts should have failed"

# So many jobs at a time.
for jobs in "-j" "-j 0" "-j many" "-jx"; do
  # shellcheck disable=SC2086
  ci/build $jobs >"$work/out.txt" 2>&1 && fail "ci/build $jobs passed"
done
ci/build -j 2 >"$work/out.txt" 2>&1; status=$?
{ [[ $status == 2 ]] && grep -q "sand, lime" "$work/out.txt"; } || fail "ci/build -j 2 is refused"

# A part that runs tests says how many passed and were skipped, and names those that failed, no others.
printf '#!/bin/sh\n' | tee ci/deps >ci/build
mkdir build
cat >build/CTestTestfile.cmake <<'END'
add_test(a.passes true)
add_test(a.skips sh -c "exit 77")
set_tests_properties(a.skips PROPERTIES SKIP_RETURN_CODE 77)
END
ci/test ctest >"$work/out.txt" 2>&1 || fail "ci/test failed although no test did"
grep -q "1 tests passed, 1 skipped$" "$work/out.txt" || fail "a skipped test is not only counted"
echo 'add_test(a.fails false)' >>build/CTestTestfile.cmake
ci/test ctest >"$work/out.txt" 2>&1 && fail "ci/test passed although a test failed"
grep -q "1 tests passed, 1 skipped, failed: a.fails$" "$work/out.txt" || fail "the failed test, and it alone, should be named"

# ci/gpu goes on where it stopped, with programs that only say how often they were started.
mkdir -p bin build-gpu/reference
# shellcheck disable=SC2016  # for the script that is written
printf '#!/bin/sh\ncase $1 in *compute_cap*) echo 9.0 ;; *driver*) echo "${DRIVER:-580}" ;; *) echo "${GPU:-NVIDIA H100}" ;; esac\n' >bin/nvidia-smi
printf '#!/bin/sh\necho started >>%s/starts\n' "$PWD" | tee bin/ctest build-gpu/{core,models,parallel,training}_tests \
  build-gpu/{parallel_faults,espalier} >build-gpu/reference/config.toml
printf '#!/bin/sh\nshift 2\nexec "$@"\n' >bin/mpiexec.mpich
touch build-gpu/build.ninja
chmod +x bin/* build-gpu/*
# gpu EXIT_CODE STARTS ARGUMENT...: ends so, and has started so many programs.
gpu() {
  local status=0 count; : >starts
  PATH=$PWD/bin:$PATH ci/gpu "${@:3}" >"$work/out.txt" 2>&1 || status=$?
  count=$(wc -l <starts)
  [[ $status == "$1" && $count == "$2" ]] || fail "ci/gpu ${*:3}: exit code $status and $count starts, wanted $1 and $2"
}
gpu 0 5 smoke
gpu 0 0 smoke
[[ $(grep -c '^passed   before ' "$work/out.txt") == 5 ]] || fail "what has passed before is not listed"
gpu 0 4 verify  # of six, two of which are of smoke, too
gpu 0 5 --again smoke
gpu 0 1 --again --only layernorm smoke
gpu 2 0 --only no_such_item smoke verify
grep -q "of these: .*layernorm.*verify_fp64" "$work/out.txt" || fail "--only that matches nothing does not say what there is"
GPU="NVIDIA H200" gpu 0 5 smoke
echo "# another" >>bench/lib.sh
gpu 0 5 smoke
echo "exit 1" >>build-gpu/core_tests
gpu 1 5 smoke
grep -q "^FAILED .* layernorm " "$work/out.txt" || fail "the item that failed is not named"
gpu 1 1 smoke
gpu 1 0 --seconds 5 smoke
grep -q "^left out .* layernorm .* goes on here" "$work/out.txt" || fail "what was left out is not told"
echo "echo measured" >>build-gpu/espalier
gpu 0 1 --only '^ops$' bench
gpu 0 0 --only '^ops$' bench
grep -q "^ *measured" "$work/out.txt" || fail "what was measured before is not shown"
DRIVER=590 gpu 1 0 --seconds 5 --only '^ops$' bench
grep -q "^ *measured" "$work/out.txt" && fail "what was measured with another driver is shown for an item that is left out"
DRIVER=590 gpu 0 1 --only '^ops$' bench

# The head's matmuls of each chunk of rows are listed once, with what ncu reports: a line for each metric of a kernel.
if command -v python3 >/dev/null; then
  id=0
  {
    echo '==PROF== Connected'
    echo '"ID","Kernel Name","Metric Name","Metric Value"'
    for kernel in espalier::adamw_update espalier::layernorm_forward head_forward_1 espalier::cross_entropy head_dw_1 head_dx_1 \
      head_forward_2 espalier::cross_entropy head_dw_2 head_dx_2 espalier::layernorm_backward espalier::adamw_update; do
      printf '"%d","%s","dram__bytes.sum","2,000"\n"%d","%s","gpu__time_duration.sum","1,000,000"\n' $id $kernel $id $kernel
      id=$((id + 1))
    done
  } >kernels.csv
  python3 "$root/bench/list_kernels.py" kernels.csv >"$work/out.txt" 2>&1 || fail "list_kernels.py: exit code $?"
  grep -q "^11 kernels, 11.00 ms" "$work/out.txt" || fail "a step of 11 kernels of a millisecond was profiled"
  [[ $(sed -nE 's/^ +1[.]000 ms  //p' "$work/out.txt" | paste -sd ' ') == \
    "head_forward_1 head_dw_1 head_dx_1 head_forward_2 head_dw_2 head_dx_2" ]] || fail "the head's matmuls are others"
fi

((failures == 0)) || exit 1
echo "$count scripts"
