#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny GPT-2 for ten steps with PyTorch and writes losses and gradient norms as C++ constants.

    python3 tests/models/pytorch_reference.py > tests/models/pytorch_losses.hpp

For development alone: the tests read the constants and need no PyTorch. Weights and tokens are closed forms that
test_matches_pytorch.cpp writes the same way, exact in fp32.
"""
import math

import torch
import torch.nn.functional as F

VOCABULARY, POSITIONS, LAYERS, CHANNELS, HEADS, FFN = 61, 16, 2, 32, 4, 128
BATCH, LENGTH, STEPS = 4, 16, 10
PEAK, MINIMUM, WARMUP = 1e-2, 1e-3, 3
BETAS, EPS, WEIGHT_DECAY, MAX_NORM = (0.9, 0.95), 1e-8, 0.1, 1.0


def hash32(stream: int, index: int) -> int:
    mask = 0xFFFFFFFF
    x = (index * 2654435761 + stream * 2246822519 + 374761393) & mask
    x = ((x ^ (x >> 15)) * 2246822519) & mask
    x = ((x ^ (x >> 13)) * 3266489917) & mask
    return x ^ (x >> 16)


def shapes() -> dict[str, tuple[int, ...]]:
    table = {"embedding.token": (VOCABULARY, CHANNELS), "embedding.position": (POSITIONS, CHANNELS),
             "final_norm.weight": (CHANNELS,), "final_norm.bias": (CHANNELS,)}
    for layer in range(LAYERS):
        for name, shape in {"norm1": (CHANNELS,), "norm2": (CHANNELS,), "attention.qkv": (3 * CHANNELS, CHANNELS),
                            "attention.proj": (CHANNELS, CHANNELS), "mlp.up": (FFN, CHANNELS),
                            "mlp.down": (CHANNELS, FFN)}.items():
            table[f"h.{layer}.{name}.weight"] = shape
            table[f"h.{layer}.{name}.bias"] = shape[:1]
    return table


def initial_weights(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Multiples of 2^-18 in [-1/8, 1/8), for norm weights around 1; the stream is the rank of the name in the alphabet."""
    weights = {}
    for stream, (name, shape) in enumerate(sorted(shapes().items())):
        values = [((hash32(stream, i) >> 16) - 32768) / 262144 for i in range(math.prod(shape))]
        mean = 1 if "norm" in name and name.endswith("weight") else 0
        weights[name] = (torch.tensor(values, dtype=dtype).reshape(shape) + mean).requires_grad_()
    return weights


def tokens_of(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets (B, T): sequences of T + 1 tokens, two batches in turn; one target a step is ignored."""
    count = BATCH * (LENGTH + 1)
    text = torch.tensor([hash32(1000 + step % 2, i) % VOCABULARY for i in range(count)]).reshape(BATCH, LENGTH + 1)
    targets = text[:, 1:].clone()
    targets[step % BATCH, step] = -100
    return text[:, :-1], targets


def logits_of(w: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    def norm(x, name):
        return F.layer_norm(x, (CHANNELS,), w[name + ".weight"], w[name + ".bias"], eps=1e-5)

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def heads(x):
        return x.reshape(BATCH, LENGTH, HEADS, CHANNELS // HEADS).transpose(1, 2)

    x = w["embedding.token"][tokens] + w["embedding.position"][:LENGTH]
    for layer in range(LAYERS):
        h = f"h.{layer}."
        q, k, v = (heads(part) for part in linear(norm(x, h + "norm1"), h + "attention.qkv").chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, LENGTH, CHANNELS)
        x = x + linear(y, h + "attention.proj")
        x = x + linear(F.gelu(linear(norm(x, h + "norm2"), h + "mlp.up"), approximate="tanh"), h + "mlp.down")
    return norm(x, "final_norm") @ w["embedding.token"].T


def learning_rate(step: int) -> float:
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)
    return MINIMUM + 0.5 * (PEAK - MINIMUM) * (1 + math.cos(math.pi * min(1, (step - WARMUP) / (STEPS - WARMUP))))


def train(dtype: torch.dtype) -> tuple[list[float], list[float]]:
    weights = initial_weights(dtype)
    groups = [{"params": [w for w in weights.values() if w.dim() > 1], "weight_decay": WEIGHT_DECAY},
              {"params": [w for w in weights.values() if w.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=BETAS, eps=EPS)
    losses, norms = [], []
    for step in range(STEPS):
        inputs, targets = tokens_of(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(logits_of(weights, inputs).flatten(0, 1), targets.flatten(), ignore_index=-100)
        loss.backward()
        # clip_grad_norm_ divides by norm + 1e-6; this is the formula without that.
        norm = torch.linalg.vector_norm(torch.cat([w.grad.flatten() for w in weights.values()]))
        for w in weights.values():
            w.grad *= min(1.0, MAX_NORM / norm.item())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms


def main() -> None:
    print("// SPDX-FileCopyrightText: The Espalier authors")
    print("// SPDX-License-Identifier: Apache-2.0")
    print("#pragma once\n")
    print(f"// Written by pytorch_reference.py with PyTorch {torch.__version__}: ten losses and gradient norms (before clipping).")
    print("// clang-format off")
    print("namespace espalier::test::pytorch {\n")
    for name, dtype in (("fp32", torch.float32), ("fp64", torch.float64)):
        for what, values in zip(("losses", "norms"), train(dtype)):
            print(f"inline constexpr double {what}_{name}[] = {{")
            for first in range(0, STEPS, 4):
                print("    " + ", ".join(f"{value:.17g}" for value in values[first:first + 4]) + ",")
            print("};")
    print("\n}  // namespace espalier::test::pytorch")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
