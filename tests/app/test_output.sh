#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# The command must succeed and print exactly what the file holds: test_output.sh FILE COMMAND...
set -euo pipefail
expected=$1; shift
"$@" | diff "$expected" -
