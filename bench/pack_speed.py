#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Packs the same JSON lines with `espalier data pack` and with Python's `tokenizers`, in turns, each on as many threads and
in a process of its own. The ids must be the same. Told are medians of seconds, tokens per second and CPU seconds, and the ratios to
Espalier's: on a machine that others use, too, the ratio of CPU seconds is the more reliable one.

Espalier's time is that of the whole process. The peer's is without its imports and without loading the tokenizer: it reads the lines
with json, encodes them with encode_batch_fast, and writes the ids; `encoding` is encode_batch_fast alone.

    bench/pack_speed.py --tokenizer tokenizer.json [--texts DIRECTORY...] [--megabytes 64] [--threads 2] [--rounds 5]
"""
import argparse
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def write_corpus(path: Path, roots: list[str], most_bytes: int) -> int:
    """A JSON line for each text below the directories, in their order; returns the bytes of text."""
    done = 0
    with path.open("w", encoding="utf-8") as corpus:
        for root in roots:
            begin = done
            for file in sorted(Path(root).rglob("*")):
                if done - begin >= most_bytes // len(roots):
                    break
                try:
                    raw = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
                    text = raw.decode()
                except (OSError, UnicodeDecodeError, EOFError):
                    continue
                if len(raw) < 200 or len(raw) > 1 << 20 or "\0" in text:
                    continue
                corpus.write(json.dumps({"text": text}) + "\n")
                done += len(raw)
    return done


def clocks() -> tuple[float, float]:
    """Seconds, and CPU seconds of this process."""
    return time.perf_counter(), time.process_time()


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_peer(tokenizer_file: str, corpus: str, output: str) -> None:
    """The peer's process: prints seconds and CPU seconds, and those of the encoding alone."""
    from array import array

    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(tokenizer_file)
    begin = clocks()
    encoding = [0.0, 0.0]
    with open(corpus, encoding="utf-8") as lines, open(output, "wb") as ids:
        texts: list[str] = []

        def flush() -> None:
            start = clocks()
            encoded = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            for i in range(2):
                encoding[i] += clocks()[i] - start[i]
            for one in encoded:
                array("I", one.ids).tofile(ids)
            texts.clear()

        for line in lines:
            texts.append(json.loads(line)["text"])
            if len(texts) == 1000:
                flush()
        flush()
    print(*(now - then for now, then in zip(clocks(), begin, strict=True)), *encoding)


def packed_ids(path: Path) -> bytes:
    """The ids of a token file as uint32."""
    from array import array
    with path.open("rb") as file:
        header = file.read(256)
        width, count = int.from_bytes(header[12:16], "little"), int.from_bytes(header[24:32], "little")
        ids = array("H" if width == 2 else "I")
        ids.fromfile(file, count)
    return array("I", ids).tobytes()


def cpu_name() -> str:
    names = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else "unknown CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--espalier", default="build/espalier")
    parser.add_argument("--tokenizer", required=True, help="a tokenizer.json")
    parser.add_argument("--texts", nargs="+", default=["/usr/share/doc", "/usr/share/man", f"/usr/lib/python3.{sys.version_info.minor}"])
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return run_peer(args.tokenizer, *args.peer)
    times: dict[str, list[tuple[float, float]]] = {"espalier": [], "tokenizers": [], "encoding": []}
    with tempfile.TemporaryDirectory() as name:
        corpus, ours, theirs = Path(name) / "corpus.jsonl", Path(name) / "ours.bin", Path(name) / "theirs.bin"
        size = write_corpus(corpus, args.texts, args.megabytes << 20)
        pack = [args.espalier, "data", "pack", "--key", "text", "--tokenizer", args.tokenizer, "--threads", str(args.threads),
                "--output", str(ours), str(corpus)]
        peer = [sys.executable, __file__, "--tokenizer", args.tokenizer, "--peer", str(corpus), str(theirs)]
        environment = dict(os.environ, RAYON_NUM_THREADS=str(args.threads), TOKENIZERS_PARALLELISM="true")
        for _ in range(args.rounds):
            begin, cpu = time.perf_counter(), cpu_of_children()
            subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)
            times["espalier"].append((time.perf_counter() - begin, cpu_of_children() - cpu))
            done = subprocess.run(peer, check=True, env=environment, stdout=subprocess.PIPE, text=True)
            seconds = list(map(float, done.stdout.split()))
            times["tokenizers"].append((seconds[0], seconds[1]))
            times["encoding"].append((seconds[2], seconds[3]))
        count = theirs.stat().st_size // 4
        if packed_ids(ours) != theirs.read_bytes():
            sys.exit("pack_speed.py: the ids differ")
    print(f"{cpu_name()}, {args.threads} threads, {size / 1e6:.0f} MB of text, {count} tokens, the same ids; medians of {args.rounds}")
    ours = [statistics.median(column) for column in zip(*times["espalier"], strict=True)]
    for part, seconds in times.items():
        wall, cpu = (statistics.median(column) for column in zip(*seconds, strict=True))
        print(f"{part:<10} {wall:7.2f} s, {count / wall / 1e6:.2f} M tokens/s, {cpu:.2f} CPU s:"
              f" espalier is {wall / ours[0]:.2f} times as fast ({cpu / ours[1]:.2f} by CPU time)")


if __name__ == "__main__":
    main()
