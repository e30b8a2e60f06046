#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Times a training step of GPT-2 in Espalier and in PyTorch in turns; started by bench/compare_pytorch.

Each round runs every contestant once in a process of its own, so that all meet whatever else the machine does, and none
has another's memory. PyTorch's peer is the best of the modes that keep weights and moments in fp32.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

PRESETS = {  # layers, channels, heads
    "gpt2-124m": (12, 768, 12),
    "gpt2-355m": (24, 1024, 16),
    "gpt2-774m": (36, 1280, 20),
    "gpt2-1558m": (48, 1600, 25),
}
VOCABULARY, POSITIONS = 50257, 1024
MODES = {  # by precision: those that keep fp32 weights and moments, then those that do not
    "fp32": (["eager", "compiled"], []),
    "bf16": (["eager", "compiled"], ["pure", "pure-compiled"]),
}


def torch_step(args: argparse.Namespace) -> dict:
    """One contestant of PyTorch, in this process."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    layers, channels, heads = PRESETS[args.model]
    length, batch = args.sequence_length, args.micro_batch

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
            self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
            self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)

        def forward(self, x):  # (B, T, C)
            q, k, v = (part.reshape(batch, length, heads, -1).transpose(1, 2)
                       for part in self.qkv(self.norm1(x)).chunk(3, dim=-1))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(batch, length, channels))
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(VOCABULARY, channels), nn.Embedding(POSITIONS, channels)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm = nn.LayerNorm(channels)
            for table in (self.tokens, self.positions):
                nn.init.normal_(table.weight, std=0.02)

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions.weight[:length]
            for block in self.blocks:
                x = block(x)
            logits = F.linear(self.norm(x), self.tokens.weight)
            return F.cross_entropy(logits.reshape(-1, VOCABULARY), targets.reshape(-1))

    model = Gpt()
    pure = args.mode.startswith("pure")
    if pure:
        model = model.to(torch.bfloat16)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)
    loss_of = torch.compile(model) if args.mode.endswith("compiled") else model
    seconds = []
    for step in range(args.steps + 2):  # two more: compilation, first touch
        text = torch.randint(VOCABULARY, (batch, length + 1))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16" and not pure):
            loss = loss_of(text[:, :-1], text[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= 2:
            seconds.append(time.perf_counter() - begin)

    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    rate = 0.0
    for size in (1024, 2048, 4096):
        a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
        for _ in range(3):
            begin = time.perf_counter()
            a @ b
            rate = max(rate, 2 * size**3 / (time.perf_counter() - begin))
    return {"tokens_per_second": batch * length / statistics.median(seconds), "gemm_flops_per_second": rate,
            "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, "version": torch.__version__}


def run(command: list[str], args: argparse.Namespace) -> dict:
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout[result.stdout.index("{"):])


def contestants(args: argparse.Namespace) -> dict[str, list[str]]:
    shape = ["--model", args.model, "--micro-batch", str(args.micro_batch), "--sequence-length",
             str(args.sequence_length), "--precision", args.precision, "--steps", str(args.steps)]
    commands = {"espalier": ["build/espalier", "bench", "step", *shape, "--json", *args.override]}
    peers, others = MODES[args.precision]
    for mode in args.modes.split(",") if args.modes else peers + others:
        commands[f"pytorch {mode}"] = [sys.executable, __file__, *shape, "--threads", str(args.threads), "--mode", mode]
    return commands


def table(results: dict[str, list[dict]], args: argparse.Namespace) -> dict:
    def median(name: str, key: str) -> float:
        return statistics.median(result[key] for result in results[name])

    flops_per_token = results["espalier"][0]["flops_per_second"] / results["espalier"][0]["tokens_per_second"]
    cpu = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "unknown CPU")
    print(f"{args.model}, {args.micro_batch} x {args.sequence_length}, {args.precision}, {args.threads} threads, {cpu}"
          f"{''.join(', ' + key for key in args.override)}")
    print(f"{'':24}{'tokens/s':>10}{'GFLOP/s':>10}{'of own GEMM':>13}{'peak GB':>9}")
    rows = {}
    for name in results:
        rate = median(name, "tokens_per_second")
        rows[name] = {"tokens_per_second": rate, "gemm_fraction": rate * flops_per_token / median(name, "gemm_flops_per_second"),
                      "peak_resident_bytes": median(name, "peak_resident_bytes")}
        print(f"{name:24}{rate:10.1f}{rate * flops_per_token / 1e9:10.1f}{rows[name]['gemm_fraction']:13.2f}"
              f"{rows[name]['peak_resident_bytes'] / 1e9:9.2f}")
    peers = [f"pytorch {mode}" for mode in MODES[args.precision][0] if f"pytorch {mode}" in rows]
    if peers:
        best = max(peers, key=lambda name: rows[name]["tokens_per_second"])
        rows["ratio"] = rows["espalier"]["tokens_per_second"] / rows[best]["tokens_per_second"]
        rows["memory_ratio"] = rows["espalier"]["peak_resident_bytes"] / rows[best]["peak_resident_bytes"]
        print(f"espalier over {best}: {rows['ratio']:.2f} of the rate, {rows['memory_ratio']:.2f} of the memory")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=PRESETS, default="gpt2-124m")
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--sequence-length", type=int, default=256)
    parser.add_argument("--precision", choices=MODES, default="fp32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--modes", default="", help="of PyTorch, comma-separated; default: all of the precision")
    parser.add_argument("--override", action="append", default=[],
                        help="section.key=value for Espalier, e.g. parallel.recompute=full")
    parser.add_argument("--json", default="", help="file to write the medians to")
    parser.add_argument("--mode", default="", help=argparse.SUPPRESS)  # one contestant of PyTorch
    args = parser.parse_args()
    if args.mode:
        print(json.dumps(torch_step(args)))
        return
    commands = contestants(args)
    results: dict[str, list[dict]] = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name, command in commands.items():
            results[name].append(run(command, args))
    rows = table(results, args)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
