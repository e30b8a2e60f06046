#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels of the last whole training step in what a profiler has written; started by bench/profile_step.

list_kernels.py FILE.csv: of `ncu --csv`, or of `nsys stats --report cuda_gpu_trace --format csv`. A step is what lies
between two kernels of AdamW. The products of the head are what a library runs around the cross-entropy.
"""
import collections
import csv
import re
import shutil
import subprocess
import sys
from pathlib import Path


def read(path: Path) -> list[tuple[str, float]]:
    """Name and nanoseconds of each kernel, in the order in which they ran."""
    lines = [line for line in path.read_text().splitlines() if "," in line and not line.startswith("==")]
    kernels = []
    for row in csv.DictReader(lines):
        name = row.get("Kernel Name") or row.get("Name") or ""
        duration = row.get("Metric Value") or row.get("Duration (ns)") or ""
        if duration and not name.startswith("[CUDA mem"):
            kernels.append((name, float(duration.replace(",", ""))))
    return list(zip(demangled([name for name, _ in kernels]), [duration for _, duration in kernels]))


def demangled(names: list[str]) -> list[str]:
    if not any(name.startswith("_Z") for name in names) or not shutil.which("c++filt"):
        return names
    return subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()


def is_ours(name: str) -> bool:
    return any(word in name for word in ("espalier", "Kokkos", "desul"))


def short(name: str) -> str:
    """Of ours the function whose kernel it is."""
    helpers = ("for_rows", "column_sums", "column_sums_by_teams", "scatter_rows_by_teams", "bfloat16", "float16")
    scopes = r"(?:\w+::|\(anonymous namespace\)::|<unnamed>::)*"
    found = [function for function in re.findall(rf"\bespalier::{scopes}(\w+)", name) if function not in helpers]
    return "espalier " + found[0] if found else name[:110]


def last_step(kernels: list[tuple[str, float]]) -> list[tuple[str, float]]:
    updates = [i for i, (name, _) in enumerate(kernels) if "adamw" in name]
    if len(updates) < 2:
        sys.exit(f"list_kernels: error: {len(kernels)} kernels, {len(updates)} of AdamW: no whole step was profiled")
    return kernels[updates[-2] + 1 : updates[-1] + 1]


def head_products(step: list[tuple[str, float]]) -> list[tuple[str, float]]:
    products = []
    for i, (name, _) in enumerate(step):
        if "cross_entropy" not in name:
            continue
        before, after = i, i + 1
        while before > 0 and not is_ours(step[before - 1][0]):
            before -= 1
        while after < len(step) and not is_ours(step[after][0]):
            after += 1
        products += step[before:i] + step[i + 1 : after]
    return products


def main() -> None:
    step = last_step(read(Path(sys.argv[1])))
    total = sum(duration for _, duration in step)
    times: dict[str, list[float]] = collections.defaultdict(list)
    for name, duration in step:
        times[short(name)].append(duration)
    print(f"{len(step)} kernels, {total * 1e-6:.2f} ms\n{'ms':>8} {'share':>6} {'count':>6}  kernel")
    for name, each in sorted(times.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(each) * 1e-6:8.3f} {sum(each) / total:6.3f} {len(each):6}  {name}")
    print("products of the head, in their order (forward, gradient of weights, gradient of input, for each chunk of rows)")
    for name, duration in head_products(step):
        print(f"{duration * 1e-6:8.3f} ms  {name}")


if __name__ == "__main__":
    main()
