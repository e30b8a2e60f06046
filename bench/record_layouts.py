#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Trains three steps in twenty layouts and records what a change of the code must leave as it is: the bits of losses, gradient
norms, weights and moments, the peak memory of rank 0 by category, and the bytes that each rank sends along each axis.

    bench/record_layouts.py build/espalier before.json
    bench/record_layouts.py build/espalier after.json --against before.json    exit status 1 where they differ

Bits depend on the CPU and its libraries: compare records of one machine.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CONFIG = """
[model]
vocab_size = 259
max_sequence_length = 32
num_layers = 5
hidden_size = 48
num_heads = 4
ffn_hidden_size = 96
[data]
train = ["train.bin"]
[batch]
global_batch_size = 16
micro_batch_size = 2
[optimizer]
learning_rate = 1e-3
warmup_steps = 2
[run]
steps = 3
"""
TENSOR, PIPELINE = "parallel.tensor=2", "parallel.pipeline=2"
LAYOUTS = {  # name: ranks, overrides
    "one_rank": (1, ()),
    "one_rank_fp64": (1, ("precision.compute=fp64",)),
    "one_rank_bf16_selective": (1, ("precision.compute=bf16", "parallel.recompute=selective")),
    "one_rank_fp16_residual": (1, ("precision.compute=fp16", "precision.residual=state")),
    "one_rank_full": (1, ("parallel.recompute=full",)),
    "data": (3, ("batch.global_batch_size=18",)),
    "zero1": (2, ("parallel.zero_stage=1",)),
    "zero1_bf16": (4, ("parallel.zero_stage=1", "precision.compute=bf16", "precision.gradient_reduction=compute",
                       "batch.micro_batch_size=1")),
    "tensor": (2, (TENSOR,)),
    "tensor_sequence": (2, (TENSOR, "parallel.sequence_parallel=true")),
    "tensor_sequence_bf16_full": (4, ("parallel.tensor=4", "parallel.sequence_parallel=true", "precision.compute=bf16",
                                      "parallel.recompute=full")),
    "gpipe": (2, (PIPELINE, "parallel.schedule=gpipe")),
    "1f1b": (3, ("parallel.pipeline=3", "parallel.schedule=1f1b")),
    "sequential": (2, (PIPELINE, "parallel.schedule=sequential")),
    "interleaved": (2, (PIPELINE, "parallel.schedule=interleaved", "parallel.virtual_stages=2")),
    "zero_bubble": (2, (PIPELINE, "parallel.schedule=zero_bubble")),
    "zero_bubble_selective": (4, ("parallel.pipeline=4", "parallel.schedule=zero_bubble", "parallel.recompute=selective")),
    "tensor_pipeline": (4, (TENSOR, PIPELINE, "parallel.sequence_parallel=true", "parallel.recompute=selective")),
    "tensor_data_zero1": (4, (TENSOR, "parallel.zero_stage=1")),
    "all_axes": (8, (TENSOR, PIPELINE, "parallel.zero_stage=1", "parallel.sequence_parallel=true", "precision.compute=bf16",
                     "parallel.schedule=zero_bubble")),
}


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def record(run: Path) -> dict:
    manifest = json.loads(next(run.glob("checkpoints/*/manifest.json")).read_text(encoding="utf-8"))
    details = json.loads((run / "run.json").read_text(encoding="utf-8"))["details"]
    metrics = lines(run / "metrics.jsonl")
    return {
        "losses": [[step["loss"].hex(), step["gradient_norm"].hex()] for step in metrics],
        "state": {f"{block['tensor']} {block['start']} {block['count']}": block["xxh3_128"] for block in manifest["blocks"]},
        "memory": {name: size for name, size in details["memory"]["peak_by_category"].items()},
        "predicted_memory": details["memory"]["predicted_by_category"],
        "bytes_sent": [lines(path)[-1]["bytes_sent"] for path in sorted(run.glob("ranks/*.jsonl"))] or
                      [metrics[-1]["bytes_sent"]],
    }


def differences(before: object, after: object, where: str) -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [text for key in sorted(before.keys() | after.keys())
                for text in differences(before.get(key), after.get(key), f"{where}.{key}")]
    return [] if before == after else [f"{where}: {before} -> {after}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("espalier", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--against", type=Path, help="a record made before")
    parser.add_argument("--mpiexec", default=shutil.which("mpiexec.mpich") or "mpiexec")
    options = parser.parse_args()
    espalier, records = options.espalier.resolve(), {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "config.toml").write_text(CONFIG, encoding="utf-8")
        (work / "text.txt").write_text("".join(f"{number}\n" for number in range(20000)), encoding="utf-8")
        subprocess.run([espalier, "data", "pack", "--output", "train.bin", "text.txt"], cwd=work, check=True, capture_output=True)
        for name, (ranks, overrides) in LAYOUTS.items():
            command = [options.mpiexec, "-n", str(ranks), espalier, "train", "config.toml", f"run.directory={name}", *overrides]
            result = subprocess.run(command, cwd=work, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
            if result.returncode:
                sys.exit(f"{name} failed:\n{result.stdout}{result.stderr}")
            records[name] = record(work / name)
    options.output.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    if not options.against:
        return 0
    found = differences(json.loads(options.against.read_text(encoding="utf-8")), records, "layouts")
    print("\n".join(found) or f"{len(records)} layouts are as before")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
