# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on the files named, many of a module in one translation unit; called by ci/check_tidy.

clang-tidy's checks look at every header that a translation unit includes, those of Kokkos and the standard library too, and
that takes ten times as long as a file of ours. Files that share flags and no file-local name are therefore included in one
unit. A unit with a finding, or one that does not compile as one, is checked by halves, down to the single file, and only
what a single file shows counts.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-tidy"
SHIM = ROOT / "ci/clang14_source_location.hpp"
MODULES = "core|parallel|models|io|planning|training|diagnosis|app|tests|bench|examples"
LARGEST_UNIT = 24  # files; about a gigabyte of memory
NOT_IN_UNITS = ["bugprone-suspicious-include", "google-global-names-in-headers"]  # they mind that a .cpp is included


def flags_of_files():
    """What the compiler gets for each translation unit, without what names its output."""
    flags = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        words = words[next(i for i, word in enumerate(words) if word.startswith("-")):]
        for option in ("-o", "-c"):
            del words[words.index(option):words.index(option) + 2]
        flags[entry["file"]] = words
    return flags


def reached(path, found):
    """A file and the headers of ours that it includes, directly or not."""
    if path not in found and path.is_file():
        found.add(path)
        for header in re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.M):
            reached(ROOT / header, found)
    return found


def declared_names(text):
    """What the lines of a text that are not indented declare."""
    return set(re.findall(r"^(?:[\w\[][^(){}=;]*?[\s*&])?(\w+)(?=\s*(?:[({=;\[]|$))", text, re.M))


def local_names(path):
    """Names that only a source file knows: those of its unnamed namespaces, and main."""
    text = path.read_text()
    blocks = re.findall(r"^namespace \{$(.*?)^\}  // namespace$", text, re.S | re.M)
    return set().union(*map(declared_names, blocks)) | set(re.findall(r"^int (main)\(", text, re.M))


def visible_names(path):
    """Names that the headers of ours declare which a source file includes."""
    return set().union(*(declared_names(header.read_text()) for header in reached(path, set()) - {path}))


def units_of(files, flags):
    """Lists of files that can be included in one translation unit."""
    units = []
    for file in files:
        local, visible = local_names(file), visible_names(file)
        for unit in units:
            if (unit["flags"] == flags[str(file)] and len(unit["files"]) < LARGEST_UNIT and
                    not unit["local"] & (local | visible) and not unit["visible"] & local):
                break
        else:
            unit = {"flags": flags[str(file)], "files": [], "local": set(), "visible": set()}
            units.append(unit)
        unit["files"].append(file)
        unit["local"] |= local
        unit["visible"] |= visible
    return [unit["files"] for unit in units]


class Checker:
    def __init__(self, tool, seen):
        self.tool = tool
        self.seen = seen
        self.flags = flags_of_files()
        version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
        configuration = [ROOT / ".clang-tidy", SHIM, pathlib.Path(__file__)]
        self.common = version + "".join(path.read_text() for path in configuration)

    def mark(self, file):
        """The file in `seen` that stands for a check of this content with these flags and checks."""
        text = self.common + " ".join(self.flags[str(file)]) + "".join(path.read_text() for path in sorted(reached(file, set())))
        return self.seen / hashlib.sha256(text.replace(str(ROOT), "").encode()).hexdigest()

    def tidy(self, source, flags, *options):
        return subprocess.run(
            [self.tool, "--quiet", f"--config-file={ROOT}/.clang-tidy", f"--header-filter=^{ROOT}/({MODULES})/", *options,
             str(source), "--", *flags, "-Wno-unknown-warning-option", "-include", str(SHIM)],
            capture_output=True, text=True, check=False)

    def findings(self, unit):
        """What clang-tidy says of the files of a unit; remembers those that it is content with."""
        flags = self.flags[str(unit[0])]
        if len(unit) == 1:
            result = self.tidy(unit[0], flags)
            text = result.stdout + ("" if result.stdout else result.stderr) if result.returncode else ""
        else:
            with tempfile.NamedTemporaryFile("w", suffix=".cpp") as source:
                source.write("".join(f'#include "{file}"\n' for file in unit))
                source.flush()
                result = self.tidy(source.name, flags, "--checks=" + ",".join("-" + check for check in NOT_IN_UNITS))
            if result.returncode:
                half = len(unit) // 2
                return self.findings(unit[:half]) + self.findings(unit[half:])
            text = ""
        if not text:
            for file in unit:
                self.mark(file).touch()
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", help="clang-tidy 14")
    parser.add_argument("seen", type=pathlib.Path, help="folder that remembers what was found right")
    parser.add_argument("jobs", type=int)
    parser.add_argument("files", nargs="*", type=pathlib.Path, help="default: all of the modules")
    options = parser.parse_args()

    checker = Checker(options.tool, options.seen)
    files = [file.resolve() for file in options.files] or sorted(
        path for path in map(pathlib.Path, checker.flags)
        if path.is_relative_to(ROOT / "tests/published")
        or path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] not in ("tests", "bench", BUILD.name))
    unknown = [file for file in files if str(file) not in checker.flags]
    if unknown:
        sys.exit(f"tidy_units: error: nothing compiles {unknown[0]}: name a .cpp file that CMake knows")
    unseen = [file for file in files if not checker.mark(file).exists()]
    units = units_of(unseen, checker.flags)
    print(f"check_tidy: checking {len(unseen)} files of {len(files)} in {len(units)} units with {options.jobs} jobs "
          "(the others were found right before)", file=sys.stderr)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        # The largest first: none is left over at the end.
        defects = [text for text in pool.map(checker.findings, sorted(units, key=len, reverse=True)) if text]
    print("".join(defects), end="")
    sys.exit(1 if defects else 0)


if __name__ == "__main__":
    main()
