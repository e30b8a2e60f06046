#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Fails on an include that points up, on a library used, a file opened or a text parsed outside its module, on a file that outgrew its
subject, on a comment that names a file of ours that is not there, on an assignment that nvcc misreads, and on a test that no CMakeLists.txt names.

The picture is in docs/architecture.md: arrows point down only, and models and io do not know each other, nor do training and
diagnosis, but for training/config, which both use.
"""
import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 400

BELOW = {
    "core": set(),
    "parallel": {"core"},
    "models": {"core", "parallel"},
    "io": {"core", "parallel"},
    "planning": {"core", "parallel", "models", "io"},
    "training": {"core", "parallel", "models", "io", "planning"},
    "diagnosis": {"core", "parallel", "models", "io", "planning"},
    "app": {"core", "parallel", "models", "io", "planning", "training", "diagnosis"},
}
# The folders of training/, from the bottom: each includes only those before it; the last two do not know each other.
TRAINING = ["config", "prediction", "step", "checkpoint", "pretrained", "loop", "verify", "rehearsal"]
SHARED = ("diagnosis", "training/config/")  # what a module may include of one that is not below it
FREE = {"tests", "bench", "examples"}  # may include anything, included by nobody but themselves

# header pattern -> where it may be included, and why only there
RESERVED = [
    (r"mpi\.h|nccl\.h", r"parallel/|tests/support/", "messages are the business of parallel/"),
    (r"hdf5.*\.h|H5.*\.h|fstream", r"(io|tests|bench|examples)/", "files are opened in io/ only"),
    (r"cblas\.h|dnnl.*|oneapi/dnnl/.*|KokkosBlas.*|cublas.*", r"core/ops/matmul|tests/|bench/",
     "core/ops/matmul is the only caller of a GEMM library"),
    (r"cudnn.*", r"core/ops/cudnn_plan|tests/support/", "core/ops/cudnn_plan is the only caller of cuDNN"),
    (r"parallel/collectives/(emulated_links|injected_fault|message_hook)\.hpp|parallel/observe/(rank_progress|timeline)\.hpp|"
     r"training/(config/emulation|verify/fault_injection)\.hpp",
     r"(?!core/|models/|parallel/reduction/|training/step/(forward_backward|trainer))",
     "what trains knows neither test equipment nor who observes it"),
]
# Files are opened in io/ only; these read what is no file of the user's.
OPENS_FILE = re.compile(r"\b(?:fopen|freopen|open|openat|creat)\s*\(|\bstd::w?[io]?f(?:stream|ilebuf)\b")
MAY_OPEN = {
    "app/main.cpp": "/dev/null, in place of a standard stream that is closed",
    "app/rehearse.cpp": "the log of a program that it starts",
    "core/control_group.cpp": "/proc/self/cgroup, /sys/fs/cgroup: the memory and the cores that this machine gives",
    "core/machine_memory.cpp": "/proc/self/statm: the memory of this process",
    "core/memory_ledger.cpp": "/proc/self/statm: the memory of this process",
    "parallel/launch/launch_environment.cpp": "/proc/PID/status: the cores of this process and of its launcher",
}
# JSON and TOML are parsed in one place each, which bounds size and depth.
PARSES = re.compile(r"\bjson::(?:parse|accept|sax_parse)\s*\(|\btoml::parse(?:_file)?\s*\(|>>\s*json\b")
MAY_PARSE = {"io/json_reader.cpp", "io/config/toml_text.cpp"}
# A file or folder of ours in a comment, with its extension or without.
NAMED = re.compile(rf"(?<![\w/.<\"-])(?:{'|'.join(sorted(BELOW.keys() | FREE))})(?:/\w+)+(?:\.[a-z]+)?")
# nvcc 13 drops the names of members in such an assignment within a template or a lambda with auto parameters or template
# parameters: the values go to the first members.
TEMPLATE = re.compile(r"\btemplate <|\]\s*<|[(,] *(?:const )?auto[&*]* \w+ *[,)]")
UNTYPED = re.compile(r"^\s*\w(?:[^\s=]|\[[^\]]*\])* = \{\s*\.\w")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def points_up(folder: str, other: str) -> bool:
    """Whether an include from one folder of training/ in another has no place in the picture."""
    if folder not in TRAINING or other not in TRAINING:
        return True
    return folder != other and (other in TRAINING[-2:] or TRAINING.index(other) > TRAINING.index(folder))


def problems_of(path: Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    module = name.split("/")[0]
    lines = path.read_text(encoding="utf-8").splitlines()
    has_templates = any(map(TEMPLATE.search, lines))
    found = []
    if len(lines) > MAX_LINES:
        found.append(f"{name}: {len(lines)} lines, at most {MAX_LINES}: a file has one subject")
    if not lines or "SPDX-FileCopyrightText" not in lines[0]:
        found.append(f"{name}:1: does not begin with the two SPDX lines")
    for number, line in enumerate(lines, 1):
        if module in BELOW and module != "io" and name not in MAY_OPEN and OPENS_FILE.search(line.split("//")[0]):
            found.append(f"{name}:{number}: opens a file: that is the business of io/ (or a reason in MAY_OPEN)")
        if module in BELOW and name not in MAY_PARSE and PARSES.search(line.split("//")[0]):
            found.append(f"{name}:{number}: parses JSON or TOML: that is the business of {', '.join(sorted(MAY_PARSE))}")
        if has_templates and UNTYPED.match(line):
            found.append(f"{name}:{number}: assigns members by name without their type, which nvcc misreads in a template: "
                         "x = Type{.member = value}")
        found += [f"{name}:{number}: its comment names {named}, which is not there"
                  for named in NAMED.findall(line.partition("//")[2])
                  if not (ROOT / named).exists() and not list(ROOT.glob(f"{named}.*"))]
        match = INCLUDE.match(line)
        if not match:
            continue
        where, header = f"{name}:{number}", match.group(2)
        for pattern, places, reason in RESERVED:
            if re.fullmatch(pattern, header) and not re.match(places, name):
                found.append(f"{where}: includes <{header}>: {reason}")
        target = header.split("/")[0]
        if match.group(1) == '"':
            if target not in BELOW.keys() | FREE or not (ROOT / header).is_file():
                found.append(f'{where}: "{header}" is no path from the root of the repository ("core/tensor.hpp")')
                continue
        elif target in BELOW.keys() | FREE and (ROOT / header).is_file():
            found.append(f"{where}: <{header}> is ours: in quotes")
        else:
            continue
        is_shared = module == SHARED[0] and header.startswith(SHARED[1])
        if module in BELOW and target != module and target not in BELOW[module] and not is_shared:
            found.append(f"{where}: {module}/ includes {target}/: arrows point down only "
                         f"({module} may include {', '.join(sorted(BELOW[module])) or 'no other module'})")
        if module == target == "training" and points_up(name.split("/")[1], header.split("/")[1]):
            found.append(f"{where}: includes training/{header.split('/')[1]}/: folders of training/ include only those before "
                         f"them ({' < '.join(TRAINING[:-2])} < {' and '.join(TRAINING[-2:])})")
        if module in FREE and target in FREE - {module}:
            found.append(f"{where}: {target}/ is included by nobody")
    return found


def forgotten_tests() -> list[str]:
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.cpp")):
        module = path.relative_to(ROOT / "tests").parts[0]
        lists = ROOT / "tests" / module / "CMakeLists.txt"
        name = path.relative_to(lists.parent)
        if not lists.is_file() or not re.search(rf"(?<![\w/]){re.escape(str(name))}\b", lists.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(ROOT)}: tests/{module}/CMakeLists.txt does not name it: it is never run")
    return found


def kokkos_in_host_files() -> list[str]:
    """With CUDA, HOST modules and host sources are compiled by the host's compiler alone, which cannot read Kokkos' headers."""
    included = {}

    def headers_of(name: str) -> set[str]:
        """Ours that a file includes, directly or not; Kokkos' by their own names."""
        if name not in included:
            included[name] = set()
            for match in map(INCLUDE.match, (ROOT / name).read_text(encoding="utf-8").splitlines()):
                if match and match.group(2).startswith("Kokkos_"):
                    included[name] |= {match.group(2)}
                elif match and (ROOT / match.group(2)).is_file():
                    included[name] |= {match.group(2)} | headers_of(match.group(2))
        return included[name]

    found = []
    for lists in sorted(ROOT.glob("*/CMakeLists.txt")):
        text = lists.read_text(encoding="utf-8")
        hosts = {lists.parent / name for match in re.findall(r"espalier_host_sources\(\w+ ([^)]*)\)", text) for name in match.split()}
        if re.search(r"^\s*HOST\)", text, re.MULTILINE):
            hosts |= set(lists.parent.glob("*.[ch]pp"))
        found += [f"{path.relative_to(ROOT)}: includes Kokkos, by way of other headers or not: {lists.relative_to(ROOT)} says HOST"
                  for path in sorted(hosts)
                  if any(header.startswith("Kokkos_") for header in headers_of(path.relative_to(ROOT).as_posix()))]
    return found


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    files = [path for module in sorted(BELOW.keys() | FREE) for path in sorted((ROOT / module).rglob("*"))
             if path.suffix in {".hpp", ".cpp", ".h", ".cu"}]
    if not files:
        print("check_layering: found no source files", file=sys.stderr)
        return 1
    found = [problem for path in files for problem in problems_of(path)]
    found += forgotten_tests() + kokkos_in_host_files()
    for problem in found:
        print(problem)
    print(f"check_layering: {len(files)} files, {len(found)} problems", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
