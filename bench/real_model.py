#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""What bench/real_model asks of Python: tokens of texts, losses by transformers, and comparisons.

    tokens MODEL OUTPUT TEXT...        nanoGPT's format, without the last tenth, which goes to OUTPUT's neighbour val.bin
    loss MODEL TOKENS LENGTH           by transformers in fp32, of whole sequences, as `espalier evaluate` takes them
    near NAME LIMIT A B                fails where they differ by more than the limit, relative to B
    steps LIMIT RUN RUN                the same for the losses of all steps of two runs
    measure COMMAND...                 runs it; its time and the most memory of one process go to stderr
"""
import json
import resource
import subprocess
import sys
import time
from pathlib import Path


def tokens(model: str, output: str, *texts: str) -> None:
    import numpy
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    ids = []
    for text in texts:
        ids += tokenizer(Path(text).read_text(encoding="utf-8")).input_ids + [tokenizer.eos_token_id]
    trained = len(ids) * 9 // 10
    numpy.array(ids[:trained], "<u2").tofile(output)
    numpy.array(ids[trained:], "<u2").tofile(Path(output).with_name("val.bin"))
    print(f"{trained} tokens to train on, {len(ids) - trained} to validate on")


def loss(model: str, file: str, length: str) -> None:
    import numpy
    import torch
    import transformers

    torch.set_num_threads(2)
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.from_numpy(numpy.fromfile(file, "<u2").astype("int64"))
    size, total = int(length), 0.0
    count = (len(ids) - 1) // size
    with torch.no_grad():
        for first in range(0, count * size, size):
            window = ids[first:first + size + 1]
            logits = network(window[None, :-1]).logits[0].double()  # (T, V)
            total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
    print(f"{total / (count * size):.9f}")


def near(name: str, limit: str, a: str, b: str) -> None:
    difference = abs(float(a) / float(b) - 1)
    print(f"{name}: {float(a):.6f} and {float(b):.6f}, relative difference {difference:.1e}")
    if not difference <= float(limit):
        sys.exit(f"{name}: wanted at most {limit}")


def steps(limit: str, *runs: str) -> None:
    first, second = ([json.loads(line)["loss"] for line in (Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
                     for run in runs)
    differences = [abs(a / b - 1) for a, b in zip(first, second, strict=True)]
    print(f"{len(first)} steps of {' and '.join(runs)}: loss {first[0]:.4f} to {first[-1]:.4f}, largest relative difference "
          f"{max(differences):.1e}")
    if not max(differences) <= float(limit):
        sys.exit(f"losses of the steps: wanted at most {limit}")


def measure(*command: str) -> None:
    begin = time.monotonic()
    status = subprocess.run(command, check=False).returncode
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"took {time.monotonic() - begin:.1f} s and {peak / 1e6:.0f} MB of memory", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    {"tokens": tokens, "loss": loss, "near": near, "steps": steps, "measure": measure}[sys.argv[1]](*sys.argv[2:])
