#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# test_cpu_check.sh PROGRAM: a program that needs AVX512 runs where the CPU has it, and leaves with 2 and a reason elsewhere.
set -u
output=$("$1" 2>&1) status=$?
if grep -qw avx512f /proc/cpuinfo; then
  [[ $status == 0 ]] || { echo "left with $status although the CPU has AVX512: $output"; exit 1; }
else
  [[ $status == 2 && $output == *AVX512F* && $output == *ESPALIER_ARCH* ]] || { echo "left with $status: $output"; exit 1; }
fi
