#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Fails where a page names what does not exist: a link or path to no file, a script of ci/, a command of `espalier`.

Commands are asked of build/espalier where it has been built.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "espalier"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
SCRIPT = re.compile(r"(?:^|[\s`(])(?:\./)?((?:ci|\.ci)/[\w.]+)")
CONFIG = re.compile(r"(?:^|[\s`(])((?:examples|core|parallel|models|io|planning|training|app|tests|bench)/[\w./-]+\.\w+)")
COMMAND = re.compile(r"(?:^|[\s/`])espalier ((?:data |checkpoint |bench )?[a-z]+)\b")


def command_exists(words: str, known: dict[str, bool]) -> bool:
    if words not in known:
        known[words] = subprocess.run([PROGRAM, *words.split(), "--help"], capture_output=True, timeout=60).returncode == 0
    return known[words]


def problems_of(page: Path, known: dict[str, bool]) -> list[str]:
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
                if not command_exists(words.strip(), known):
                    found.append(f"{where}: there is no command `espalier {words.strip()}`")
    return found


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    known: dict[str, bool] = {}
    found = [f"{page.name} is missing" for page in pages if not page.is_file()]
    found += [problem for page in pages if page.is_file() for problem in problems_of(page, known)]
    for problem in found:
        print(problem)
    asked = f"{len(known)} commands asked of build/espalier" if PROGRAM.is_file() else "commands not checked: no build/espalier"
    print(f"check_docs: {len(pages)} pages, {asked}, {len(found)} problems", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
