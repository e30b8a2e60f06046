#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Fails where a page names what does not exist: a link or path to no file, a script of ci/, a command of `espalier`; where a
command in a block of a page would be refused; where the pages do not say of GPUs what the code says.

Commands are asked of build/espalier where it has been built: each option must be one, training is tried with --dry-run on as
many ranks, plans are made.
"""
import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "espalier"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
SCRIPT = re.compile(r"(?:^|[\s`(])(?:\./)?((?:ci|\.ci)/[\w.]+)")
CONFIG = re.compile(r"(?:^|[\s`(])((?:examples|core|parallel|models|io|planning|training|diagnosis|app|tests|bench)/[\w./-]+\.\w+)")
GPU_OPTIONS = ROOT / "app" / "gpu_options.cpp"  # which a build for CPUs does not show
RANKS = re.compile(r"-n (\d+) .*espalier ")
COMMAND = re.compile(r"(?:^|[\s/`])espalier ((?:data |checkpoint |bench )?[a-z]+)\b")


def ask(arguments: list[str], folder: str | Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300, cwd=folder, check=False)


def help_of(words: str, known: dict[str, str]) -> str:
    """What --help of a command says; empty where there is no such command."""
    if words not in known:
        answer = ask([*words.split(), "--help"])
        known[words] = answer.stdout if answer.returncode == 0 else ""
    return known[words]


def command_lines(text: str) -> list[tuple[int, str]]:
    """The lines of the blocks of a page that call espalier, continued ones joined, each with its number."""
    found, in_code, whole, begin = [], False, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif in_code:
            begin = begin if whole else number
            whole += line.removesuffix("\\")
            if line.endswith("\\"):
                continue
            if re.match(r"^(?:\w+=\S+ )*(?:(?:mpiexec|srun)\S* .*)?(?:\S*/)?espalier [a-z]", whole.strip()):
                found.append((begin, whole.strip()))
            whole = ""
    return found


def why_refused(line: str, known: dict[str, str], folder: str) -> str:
    """What is wrong with a command; empty where nothing is, as far as it can be tried without a run."""
    words = shlex.split(line, comments=True)
    first = next(i for i, word in enumerate(words) if word.split("/")[-1] == "espalier")
    arguments = words[first + 1:]
    name = " ".join(arguments[:2 if arguments[0] in ("data", "checkpoint", "bench") else 1])
    for option in (word.split("=")[0] for word in arguments if word.startswith("--")):
        if help_of(name, known) and not re.search(rf"{option}\b", help_of(name, known) + GPU_OPTIONS.read_text(encoding="utf-8")):
            return f"`espalier {name}` has no option {option}"
    if name == "train" and len(arguments) > 1 and (ROOT / arguments[1]).is_file():
        ranks = RANKS.search(line)
        extra = [] if "--dry-run" in arguments else ["--dry-run", "--ranks", ranks.group(1) if ranks else "1"]
        answer = ask([*arguments, *extra])
    elif name == "plan" and "--rehearse" not in arguments and "MODEL" not in line:
        answer = ask(arguments, folder)
    else:
        return ""
    return "" if answer.returncode == 0 else f"ends with {answer.returncode}: {answer.stderr.strip()[:300]}"


def refused_commands(page: Path, known: dict[str, str]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("examples", "tests"):
            os.symlink(ROOT / name, Path(folder) / name)
        tried = [(number, why_refused(line, known, folder)) for number, line in command_lines(page.read_text(encoding="utf-8"))]
    return [f"{page.relative_to(ROOT)}:{number}: {why}" for number, why in tried if why]


def problems_of(page: Path, known: dict[str, str]) -> list[str]:
    found, in_code = [], False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{page.relative_to(ROOT)}:{number}"
        if line.lstrip().startswith("```"):
            in_code = not in_code
        for target in LINK.findall(line):
            if "://" not in target and not target.startswith("mailto:") and not (page.parent / target).exists():
                found.append(f"{where}: link to {target}, which does not exist")
        for target in SCRIPT.findall(line) + CONFIG.findall(line):
            if not (ROOT / target.rstrip(".")).exists():
                found.append(f"{where}: {target} does not exist")
        if PROGRAM.is_file():
            quoted = [line] if in_code else re.findall(r"`[^`]+`", line)
            for words in (match for text in quoted for match in COMMAND.findall(text)):
                if not help_of(words.strip(), known):
                    found.append(f"{where}: there is no command `espalier {words.strip()}`")
    return found + (refused_commands(page, known) if PROGRAM.is_file() else [])


def caveat_problems() -> list[str]:
    """What holds of GPUs is said by the code; the README says it on its first screen, docs/gpus.md at its top."""
    code = "planning/runnable.hpp"
    caveat = re.search(r'gpu_caveat = "([^"]+)"', (ROOT / code).read_text(encoding="utf-8")).group(1).lower()
    return [f"{page}: its first {lines} lines do not say \"{caveat}\", as {code} does" for page, lines in (("README.md", 40), ("docs/gpus.md", 6))
            if caveat not in " ".join((ROOT / page).read_text(encoding="utf-8").splitlines()[:lines]).lower()]


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")),
             *sorted((ROOT / "examples").rglob("*.md"))]
    known: dict[str, str] = {}
    found = [f"{page.name} is missing" for page in pages if not page.is_file()]
    found += [problem for page in pages if page.is_file() for problem in problems_of(page, known)]
    found += caveat_problems()
    for problem in found:
        print(problem)
    asked = f"{len(known)} commands asked of build/espalier" if PROGRAM.is_file() else "commands not checked: no build/espalier"
    print(f"check_docs: {len(pages)} pages, {asked}, {len(found)} problems", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
