#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels of the last whole training step in what a profiler has written; started by bench/profile_step.

list_kernels.py FILE.csv: of `ncu --csv`, or of `nsys stats --report cuda_gpu_trace --format csv`. A step is what lies
between two kernels of AdamW. The matmuls of the head are what a library runs around the cross-entropy.
"""
import collections
import csv
import math
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Kernel(NamedTuple):
    name: str
    ns: float
    bytes: float  # from and to memory; nan where the profiler does not tell


def read(path: Path) -> list[Kernel]:
    """The kernels, in the order in which they ran."""
    lines = [line for line in path.read_text().splitlines() if "," in line and not line.startswith("==")]
    kernels: dict[str, dict[str, str]] = {}  # what is told of each; ncu has a line for each metric
    for number, row in enumerate(csv.DictReader(lines)):
        told = kernels.setdefault(row.get("ID") or str(number), {"name": row.get("Kernel Name") or row.get("Name") or ""})
        if "Metric Name" in row:
            told[row["Metric Name"]] = row["Metric Value"]
        else:
            told["gpu__time_duration.sum"] = row.get("Duration (ns)") or ""
    timed = [told for told in kernels.values() if told.get("gpu__time_duration.sum")]
    timed = [told for told in timed if not told["name"].startswith("[CUDA mem")]
    return [
        Kernel(name, number_of(told["gpu__time_duration.sum"]), number_of(told.get("dram__bytes.sum") or "nan"))
        for name, told in zip(demangled([told["name"] for told in timed]), timed)
    ]


def number_of(text: str) -> float:
    return float(text.replace(",", ""))


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


def last_step(kernels: list[Kernel]) -> list[Kernel]:
    updates = [i for i, kernel in enumerate(kernels) if "adamw" in kernel.name]
    if len(updates) < 2:
        sys.exit(f"list_kernels: error: {len(kernels)} kernels, {len(updates)} of AdamW: no whole step was profiled")
    return kernels[updates[-2] + 1 : updates[-1] + 1]


def head_matmuls(step: list[Kernel]) -> list[Kernel]:
    matmuls = []
    seen = 0  # kernels before it were looked at: between two chunks of rows no kernel of ours but theirs runs
    for i, kernel in enumerate(step):
        if "cross_entropy" not in kernel.name:
            continue
        before, after = i, i + 1
        while before > seen and not is_ours(step[before - 1].name):
            before -= 1
        while after < len(step) and not is_ours(step[after].name):
            after += 1
        matmuls += step[before:i] + step[i + 1 : after]
        seen = after
    return matmuls


def main() -> None:
    step = last_step(read(Path(sys.argv[1])))
    total = sum(kernel.ns for kernel in step)
    alike: dict[str, list[Kernel]] = collections.defaultdict(list)
    for kernel in step:
        alike[short(kernel.name)].append(kernel)
    print(f"{len(step)} kernels, {total * 1e-6:.2f} ms; GB/s from and to memory, where the profiler counts bytes")
    print(f"{'ms':>8} {'share':>6} {'count':>6} {'GB/s':>6}  kernel")
    for name, kernels in sorted(alike.items(), key=lambda item: -sum(kernel.ns for kernel in item[1])):
        ns = sum(kernel.ns for kernel in kernels)
        rate = sum(kernel.bytes for kernel in kernels) / ns
        print(f"{ns * 1e-6:8.3f} {ns / total:6.3f} {len(kernels):6} {'' if math.isnan(rate) else f'{rate:.0f}':>6}  {name}")
    print("matmuls of the head, in their order (forward, gradient of weights, gradient of input, for each chunk of rows)")
    for kernel in head_matmuls(step):
        print(f"{kernel.ns * 1e-6:8.3f} ms  {kernel.name}")


if __name__ == "__main__":
    main()
