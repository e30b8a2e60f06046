#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Times a training step of a model in Espalier and in PyTorch in turns; started by bench/compare_pytorch.

Each round runs every contestant once in a process of its own, so that all meet whatever else the machine does, and none
has another's memory. PyTorch's peer is the best of the modes that keep weights and moments in fp32; on a GPU, whose minutes
count, it alone goes on after the first round. The table is told after each round, as far as it has come.

On a GPU PyTorch's contestant is as follows, where in doubt in its favour: weights and moments in fp32, autocast to bf16,
torch.compile, fused AdamW, batches that wait in pinned memory and are copied behind the kernels, a token embedding of 50304 rows
(Espalier's logits lie in rows of 50304), the host waiting for the device before the first and after the last timed step only,
where each step of Espalier brings its loss to the host. Attention is one backend of scaled_dot_product_attention, flash or,
in modes so named, cuDNN's. Autocast leaves PyTorch's residual stream in fp32, where Espalier's is in bf16: a second contestant
of Espalier has it in fp32, too.
"""
import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytorch_models
from pytorch_models import PRESETS

MODES = {  # by precision: those that keep fp32 weights and moments, then those that do not
    "cpu": {
        "fp32": (["eager", "compiled"], []),
        "bf16": (["eager", "compiled"], ["pure", "pure-compiled"]),
    },
    "cuda": {
        "fp32": (["compiled"], []),
        "tf32": (["compiled"], []),
        "bf16": (["compiled", "cudnn-compiled"], []),
    },
}
DEFAULTS = {
    "cpu": {"model": "gpt2-124m", "micro_batch": 4, "sequence_length": 256, "precision": "fp32", "threads": 2, "steps": 3,
            "espalier": "build/espalier"},
    # The micro-batches of MICRO_BATCHES fill an H200.
    "cuda": {"model": "gpt2-124m,gpt2-1558m", "micro_batch": 0, "sequence_length": 1024, "precision": "bf16", "threads": 4,
             "steps": 20, "espalier": "build-cuda/espalier"},
}
MICRO_BATCHES = {"gpt2-124m": 32, "gpt2-355m": 16, "gpt2-774m": 16, "gpt2-1558m": 8, "smollm2-135m": 32, "llama-3.2-1b": 8}


def matmul_rate(torch, args: argparse.Namespace, dtype) -> float:
    """The best of square matmuls: on a GPU the mean of eight in its stream, as `espalier bench step` takes it."""
    rate = 0.0
    if args.device == "cpu":
        for size in (1024, 2048, 4096):
            a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
            for _ in range(3):
                begin = time.perf_counter()
                a @ b
                rate = max(rate, 2 * size**3 / (time.perf_counter() - begin))
        return rate
    for size in (4096, 8192):
        a, b = ((torch.rand(size, size, device="cuda") - 0.5).to(dtype) for _ in range(2))
        for _ in range(5):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(8):
                a @ b.t()
            end.record()
            end.synchronize()
            rate = max(rate, 8 * 2 * size**3 / (begin.elapsed_time(end) * 1e-3))
    return rate


def attention_by(args: argparse.Namespace, torch):
    """The one backend that attention may take on a GPU in 16 bits; there is no flash attention in fp32."""
    if args.precision != "bf16":
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.CUDNN_ATTENTION if "cudnn" in args.mode else SDPBackend.FLASH_ATTENTION)


def time_on_gpu(args: argparse.Namespace, torch, model, optimizer, loss_of) -> dict:
    batches = [torch.randint(PRESETS[args.model].vocabulary, (args.micro_batch, args.sequence_length + 1)).pin_memory()
               for _ in range(args.steps + 3)]

    def step(batch):
        text = batch.to("cuda", non_blocking=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = loss_of(text[:, :-1], text[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    with attention_by(args, torch):
        for batch in batches[:3]:  # not timed: compilation, first touch
            step(batch)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for batch in batches[3:]:
            loss = step(batch)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - begin) / args.steps
    free, total = torch.cuda.mem_get_info()
    if not 0 < loss.item() < 20:
        sys.exit(f"PyTorch does not train: loss {loss.item()}")
    return {"tokens_per_second": args.micro_batch * args.sequence_length / seconds,
            "device_bytes_allocated": torch.cuda.max_memory_allocated(),
            "device_bytes_reserved": torch.cuda.max_memory_reserved(),
            "device_bytes_in_use": total - free,
            "device": torch.cuda.get_device_name()}


def torch_step(args: argparse.Namespace) -> dict:
    """One contestant of PyTorch, in this process."""
    import torch

    on_gpu = args.device == "cuda"
    if on_gpu:
        torch.set_float32_matmul_precision("high" if args.precision == "tf32" else "highest")
    shape = PRESETS[args.model]
    if args.layers:
        shape = dataclasses.replace(shape, layers=args.layers)
    rows = (shape.vocabulary + 127) // 128 * 128 if on_gpu else shape.vocabulary  # of the token embedding
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    length, batch = args.sequence_length, args.micro_batch

    model = pytorch_models.build(shape, batch, length, rows).to(args.device)
    pure = args.mode.startswith("pure")
    if pure:
        model = model.to(torch.bfloat16)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)
    loss_of = torch.compile(model) if args.mode.endswith("compiled") else model
    result = {"version": torch.__version__}
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    if on_gpu:
        return result | time_on_gpu(args, torch, model, optimizer, loss_of) | {
            "gemm_flops_per_second": matmul_rate(torch, args, dtype)}

    seconds = []
    for step in range(args.steps + 2):  # two more: compilation, first touch
        text = torch.randint(shape.vocabulary, (batch, length + 1))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.precision == "bf16" and not pure):
            loss = loss_of(text[:, :-1], text[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step >= 2:
            seconds.append(time.perf_counter() - begin)

    rate = matmul_rate(torch, args, dtype)
    return result | {"tokens_per_second": batch * length / statistics.median(seconds), "gemm_flops_per_second": rate,
                     "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


class ContestantFailed(Exception):
    pass


def run(command: list[str], args: argparse.Namespace) -> dict:
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode != 0:
        raise ContestantFailed(f"{' '.join(command)} failed:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout[result.stdout.index("{"):])


def contestants(args: argparse.Namespace) -> dict[str, list[str]]:
    shape = ["--model", args.model, "--micro-batch", str(args.micro_batch), "--sequence-length",
             str(args.sequence_length), "--steps", str(args.steps)]
    tf32 = ["--matmul", "cublaslt_tf32"] if args.precision == "tf32" else []
    ours = [*shape, "--precision", "fp32" if tf32 else args.precision, *tf32]
    theirs = [*shape, "--precision", args.precision, "--threads", str(args.threads), "--device", args.device]
    if args.layers:
        ours.append(f"model.num_layers={args.layers}")
        theirs += ["--layers", str(args.layers)]
    commands = {"espalier": [args.espalier, "bench", "step", *ours, "--json", *args.override]}
    if args.device == "cuda" and args.precision == "bf16":  # the residual stream as autocast leaves it to PyTorch
        commands["espalier, residual fp32"] = [*commands["espalier"], "precision.residual=state"]
    peers, others = MODES[args.device][args.precision]
    for mode in args.modes.split(",") if args.modes else peers + others:
        commands[f"pytorch {mode}"] = [sys.executable, __file__, *theirs, "--mode", mode]
    return commands


def print_rows(results: dict[str, list[dict]], rows: dict[str, dict], flops_per_token: float, on_gpu: bool) -> None:
    scale, unit = (1e-12, "TFLOP/s") if on_gpu else (1e-9, "GFLOP/s")
    memory = ("allocated GB", "in use GB") if on_gpu else ("peak GB",)
    keys = ("device_bytes_allocated", "device_bytes_in_use") if on_gpu else ("peak_resident_bytes",)
    widths = [len(name) + 2 for name in memory]
    print(f"{'':24}{'tokens/s':>10}{unit:>10}{'of own GEMM':>13}"
          f"{''.join(f'{name:>{width}}' for name, width in zip(memory, widths))}")
    for name in results:
        row = rows[name]
        print(f"{name:24}{row['tokens_per_second']:10.1f}{row['tokens_per_second'] * flops_per_token * scale:10.1f}"
              f"{row['gemm_fraction']:13.2f}"
              f"{''.join(f'{row[key] / 1e9:{width}.2f}' for key, width in zip(keys, widths))}")


def print_for_documentation(rows: dict, args: argparse.Namespace, device: str, memory: str) -> None:
    """The row for the table "Compared with PyTorch" of docs/performance.md, under what it tells."""
    ours, theirs = rows["espalier"], rows[rows["peer"]]
    kind = {"device_bytes_in_use": "of the GPU, in use", "peak_resident_bytes": "resident, peak"}[memory]
    overrides = "".join(f", `--override {key}`" for key in args.override)
    print(f"device, date, shape, tokens/s, ratio, fractions of own GEMM rate, GB ({kind}), each Espalier's and PyTorch's:")
    print(f"| {device}, {datetime.date.today().isoformat()} "
          f"| {model_text(args)}, {args.precision}, {args.micro_batch} x {args.sequence_length}{overrides} "
          f"| {ours['tokens_per_second']:.0f}, {theirs['tokens_per_second']:.0f} | {rows['ratio']:.2f} "
          f"| {ours['gemm_fraction']:.2f}, {theirs['gemm_fraction']:.2f} "
          f"| {ours[memory] / 1e9:.2f}, {theirs[memory] / 1e9:.2f} |", flush=True)


def model_text(args: argparse.Namespace) -> str:
    return f"{args.layers} layers of {args.model}" if args.layers else args.model


def cpu_name() -> str:
    return next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name")), "unknown CPU")


def machine(results: dict[str, list[dict]], args: argparse.Namespace) -> str:
    """What was measured on, as the head of a table says it."""
    if args.device == "cpu":
        return f"{args.threads} threads, {cpu_name()}"
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                               text=True, check=True)
        driver = ", driver " + asked.stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        driver = ""
    versions = sorted({result["version"] for runs in results.values() for result in runs if "version" in result})
    return (f"{results['espalier'][0]['device']}{driver}, PyTorch {', '.join(versions) or 'left out'}, "
            f"{datetime.date.today().isoformat()}")


def table(results: dict[str, list[dict]], args: argparse.Namespace, peer: str = "") -> dict:
    """Medians; PyTorch's peer is the one named, else the best of them."""
    def median(name: str, key: str) -> float:
        return statistics.median(result[key] for result in results[name])

    on_gpu = args.device == "cuda"
    for result in (result for name in results if on_gpu and name.startswith("espalier") for result in results[name]):
        result["device_bytes_allocated"] = result["memory_peak_bytes"]["total"]
    memory = ["device_bytes_allocated", "device_bytes_in_use"] if on_gpu else ["peak_resident_bytes"]
    flops_per_token = results["espalier"][0]["flops_per_second"] / results["espalier"][0]["tokens_per_second"]
    print(f"{model_text(args)}, {args.micro_batch} x {args.sequence_length}, {args.precision}, {machine(results, args)}"
          f"{''.join(', ' + key for key in args.override)}")
    rows = {}
    for name in results:
        rate = median(name, "tokens_per_second")
        rows[name] = {"tokens_per_second": rate, "gemm_fraction": rate * flops_per_token / median(name, "gemm_flops_per_second"),
                      **{key: median(name, key) for key in memory}}
        if on_gpu:
            rows[name]["gemm_flops_per_second"] = median(name, "gemm_flops_per_second")
    print_rows(results, rows, flops_per_token, on_gpu)
    peers = [f"pytorch {mode}" for mode in MODES[args.device][args.precision][0] if f"pytorch {mode}" in rows]
    if peers:
        best = peer or max(peers, key=lambda name: rows[name]["tokens_per_second"])
        rows["peer"] = best
        rows["ratio"] = rows["espalier"]["tokens_per_second"] / rows[best]["tokens_per_second"]
        rows["memory_ratio"] = rows["espalier"][memory[-1]] / rows[best][memory[-1]]
        print(f"espalier over {best}: {rows['ratio']:.2f} of the rate, {rows['memory_ratio']:.2f} of the memory")
        device = results["espalier"][0]["device"] if on_gpu else cpu_name()
        print_for_documentation(rows, args, device, memory[-1])
    if on_gpu:
        rows["machine"] = machine(results, args)
    return rows


def require_gpu() -> None:
    """Ends with 2 where PyTorch sees no GPU."""
    try:
        import torch

        if torch.cuda.is_available():
            return
        got = f"torch {torch.__version__} sees no GPU"
    except ImportError as error:
        got = str(error)
    print(f"compare_pytorch: error: --device cuda needs a GPU that PyTorch sees\n  got:    {got}, in {sys.executable}\n"
          "  wanted: torch.cuda.is_available()\n  do:     look at nvidia-smi, and install a PyTorch for this driver's CUDA",
          file=sys.stderr)
    sys.exit(2)


def compare(args: argparse.Namespace, save) -> dict:
    """All rounds of one model; save(rows) after each on a GPU."""
    commands = contestants(args)
    results: dict[str, list[dict]] = {name: [] for name in commands}
    running = list(commands)
    rows = {}
    peer = ""  # on a GPU that of the first round: medians of one run and of several are not to be compared
    for _ in range(args.rounds):
        for name in list(running):
            try:
                results[name].append(run(commands[name], args))
            except ContestantFailed as failure:
                if args.device == "cpu" or name == "espalier":
                    sys.exit(str(failure))
                print(f"{name} is left out: {failure}", file=sys.stderr)  # the others have cost minutes of a GPU
                running.remove(name)
                if not results[name]:
                    del results[name]
        if args.device == "cuda":
            rows = table(results, args, peer)
            save(rows)
            peer = rows.get("peer", "")
            running = [name for name in running if name.startswith("espalier") or name == peer]
    return rows or table(results, args)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=DEFAULTS, default="cpu")
    parser.add_argument("--model", help="of " + ", ".join(PRESETS) + "; several, comma-separated, one after the other")
    parser.add_argument("--layers", type=int, help="so many of the model's layers, in both")
    parser.add_argument("--micro-batch", type=int)
    parser.add_argument("--sequence-length", type=int)
    parser.add_argument("--precision", choices=MODES["cuda"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--modes", default="", help="of PyTorch, comma-separated; default: all of the precision")
    parser.add_argument("--override", action="append", default=[],
                        help="section.key=value for Espalier, e.g. parallel.recompute=full")
    parser.add_argument("--json", default="", help="file to write the medians to")
    parser.add_argument("--espalier", help="the command; default: in build/, for cuda in build-cuda/")
    parser.add_argument("--mode", default="", help=argparse.SUPPRESS)  # one contestant of PyTorch
    args = parser.parse_args()
    for name, value in DEFAULTS[args.device].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.precision not in MODES[args.device]:
        parser.error(f"argument --precision: invalid choice: {args.precision!r} with --device {args.device}")
    for model in args.model.split(","):
        if model not in PRESETS:
            parser.error(f"argument --model: invalid choice: {model!r} (choose from {', '.join(PRESETS)})")
    return args


def main() -> None:
    args = parse()
    if args.device == "cuda":
        require_gpu()
    if args.mode:
        print(json.dumps(torch_step(args)))
        return
    models = args.model.split(",")
    rows = {}
    for model in models:
        one = argparse.Namespace(**{**vars(args), "model": model, "micro_batch": args.micro_batch or MICRO_BATCHES[model]})

        def save(of_model: dict, model: str = model) -> None:
            rows[model] = of_model
            if args.json:  # as far as it has come
                Path(args.json).write_text(json.dumps(rows if len(models) > 1 else of_model, indent=2) + "\n")

        save(compare(one, save))


if __name__ == "__main__":
    main()
