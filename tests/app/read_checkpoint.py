#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint by docs/checkpoint_format.md alone, with h5py: read_checkpoint.py CHECKPOINT.

Puts every tensor together from the blocks of the manifest, and compares with index.h5 and with the shapes of the page.
Exit status 77 where h5py is not installed.
"""
import json
import sys
from pathlib import Path

try:
    import h5py
    import numpy
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

TYPES = {"fp32": numpy.float32, "fp64": numpy.float64, "bf16": numpy.uint16, "fp16": numpy.uint16}


def box_of(block: dict) -> tuple[slice, ...]:
    return tuple(slice(start, start + count) for start, count in zip(block["start"], block["count"]))


def read_by_manifest(directory: Path, manifest: dict) -> dict[str, numpy.ndarray]:
    tensors, written = {}, {}
    for block in manifest["blocks"]:
        name, shape = block["tensor"], block["global_shape"]
        tensor = tensors.setdefault(name, numpy.zeros(shape, TYPES[block["dtype"]]))
        count = written.setdefault(name, numpy.zeros(shape, int))
        with h5py.File(directory / block["file"], "r") as file:
            dataset = file[block["dataset"]]
            assert dataset.shape == tuple(block["count"]) and dataset.dtype == tensor.dtype, block
            assert dataset.id.get_offset() == block["offset"], block
            tensor[box_of(block)] = dataset[()]
        count[box_of(block)] += 1
    for name, count in written.items():
        assert (count == 1).all(), f"{name}: not every element in exactly one block"
    return tensors


def shapes_of_the_page(config: str) -> dict[str, tuple[int, ...]]:
    """By the table of the page, from the stored config."""
    def key(name: str) -> int:
        return next(int(line.split("=")[1].split("#")[0]) for line in config.splitlines() if line.startswith(name + " ="))
    C, F, V, P, L = map(key, ("hidden_size", "ffn_hidden_size", "vocab_size", "max_sequence_length", "num_layers"))
    shapes = {"embedding.token": (V, C), "embedding.position": (P, C), "final_norm.weight": (C,), "final_norm.bias": (C,)}
    for i in range(L):
        block = {"norm1.weight": (C,), "norm1.bias": (C,), "norm2.weight": (C,), "norm2.bias": (C,),
                 **{f"attention.{part}.{what}": shape for part in ("query", "key", "value", "proj")
                    for what, shape in (("weight", (C, C)), ("bias", (C,)))},
                 "mlp.up.weight": (F, C), "mlp.up.bias": (F,), "mlp.down.weight": (C, F), "mlp.down.bias": (C,)}
        shapes |= {f"h.{i}.{name}": shape for name, shape in block.items()}
    return {f"{group}/{name}": shape for group in ("weights", "exp_avg", "exp_avg_sq") for name, shape in shapes.items()}


def main() -> None:
    directory = Path(sys.argv[1])
    manifest = json.loads((directory / "manifest.json").read_text())
    assert manifest["format"] == "espalier-checkpoint" and manifest["format_version"] == 2
    tensors = read_by_manifest(directory, manifest)
    assert {name: tensor.shape for name, tensor in tensors.items()} == shapes_of_the_page(manifest["state"]["config"])
    with h5py.File(directory / "index.h5", "r") as index:
        for name, tensor in tensors.items():
            assert index[name].is_virtual and index[name].shape == tensor.shape, name
            assert index[name][()].tobytes() == tensor.tobytes(), f"index.h5 shows another {name}"
        assert json.loads(index["state"][()]) == manifest["state"]
    assert (tensors["weights/final_norm.weight"] > 0.5).all(), "norms start at one"
    assert (tensors["exp_avg_sq/embedding.token"] >= 0).all() and (tensors["exp_avg_sq/embedding.token"] > 0).any()
    print(f"{len(tensors)} tensors read by the page alone; step {manifest['step']}, loss {manifest['state']['loss']:.4f}")


main()
