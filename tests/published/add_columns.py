#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a table of published runs and writes it with columns for what its sources and notes say in words.

    tests/published/add_columns.py TABLE.csv >TABLE_WITH_COLUMNS.csv

README.md beside this file names the columns. What is known of single papers stands here and nowhere else. A field that is already
filled stays as it is.
"""
import argparse
import csv
import re
import sys

ABSENT = {"", "-", "--", "?", "n/a", "na", "nan", "null", "unknown"}
COLUMNS = ["program", "fp8_scaling", "gradient_bytes", "extra_state_bytes", "zero_stage", "sequence_parallel", "schedule", "activation",
           "tied_embeddings", "moe", "flop_count", "comparable", "memory_of", "memory_unit", "memory_by", "analytic", "framework", "micro_batch",
           "vp", "network_gbps", "network_gb_per_s", "recompute_share", "experts", "top_k", "expert_parallel"]

FUSED_SINCE = 2206  # FlashAttention: arXiv 2205.14135
SEQUENCE_PARALLEL_SINCE = 2206  # arXiv 2205.05198
OVERLAP_SINCE = 2309  # Megatron-LM's --overlap-grad-reduce
TITAN_LOSS_SINCE = 2504  # torchtitan#1033


class Words:
    """The words of a row's id, source and notes. Phrases are lower case; the last word may go on unless a blank follows it."""

    def __init__(self, text: str):
        self.text = text
        self.words = re.findall(r"[a-z0-9]+", text.lower())

    def says(self, *phrases: str) -> bool:
        return any(self._finds(phrase, False) for phrase in phrases)

    def denies(self, *phrases: str) -> bool:
        """"no X", "without X", "w/o X", "X off", "X=false"."""
        return any(self._finds(phrase, True) for phrase in phrases)

    def quotes(self, *parts: str) -> bool:
        return any(part in self.text for part in parts)

    def _finds(self, phrase: str, denied: bool) -> bool:
        wanted = phrase.split()
        for begin in range(len(self.words) - len(wanted) + 1):
            found = self.words[begin:begin + len(wanted)]
            same = found[:-1] == wanted[:-1] and (found[-1] == wanted[-1] if phrase.endswith(" ") else found[-1].startswith(wanted[-1]))
            if same and self._is_denied(begin, begin + len(wanted)) == denied:
                return True
        return False

    def _is_denied(self, begin: int, end: int) -> bool:
        before = self.words[max(0, begin - 2):begin]
        return before[-1:] in (["no"], ["not"], ["without"]) or before == ["w", "o"] or self.words[end:end + 1] in (
            ["off"], ["false"], ["disabled"])


def publication_month(text: str) -> int | None:
    """2104 of "arXiv:2104.04473 Table 1", 2403 of "2024-03-17", 2412 of "benchmarks_202412", 2406 of "a report 2024"."""
    if match := re.search(r"arXiv:(\d{4})\.", text):
        return int(match.group(1))
    for match in re.finditer(r"(?<![A-Za-z0-9])20(\d\d)(?![A-Za-z0-9])(?:[-/](\d\d?))?", text):
        if 17 <= int(match.group(1)) <= 35:
            month = int(match.group(2) or 6)
            return 100 * int(match.group(1)) + (month if 1 <= month <= 12 else 6)
    if match := re.search(r"(?<![A-Za-z0-9])20([12]\d)(0[1-9]|1[0-2])(?![A-Za-z0-9])", text):
        return int(match.group(1) + match.group(2))
    return None


class Row:
    def __init__(self, fields: dict[str, str]):
        self.fields = {name: value.strip(" \t") for name, value in fields.items() if value and value.strip(" \t").lower() not in ABSENT}
        self.said = Words(" | ".join(self.text(name) for name in ("id", "source", "notes")))
        self.month = next((month for name in ("date", "published", "year", "source")
                           if (month := publication_month(self.text(name))) is not None), None)
        self.is_nemo = self.said.says("nemo ", "nemo2", "nemofw", "megatron bridge", "megatronbridge")
        self.is_megatron = self.said.says("megatron") and not self.is_nemo
        zero = self.text("zero_stage").lower()
        self.fully_sharded = "3" in zero or "fsdp" in zero
        self.is_old = self._is_old()

    def text(self, name: str) -> str:
        return self.fields.get(name, "")

    def _is_old(self) -> bool:
        """Before fused attention."""
        if self.said.says("flash"):
            return False
        # Newer, and never ran it: zero bubble keeps s b (34 h + 5 a s) a layer, BLOOM took Megatron-DeepSpeed's fused softmax.
        if self.said.quotes("2401.10241", "2211.05100", "bigscience-workshop"):
            return True
        if self.month is not None:
            return self.month < FUSED_SINCE
        return "fp16" in self.text("precision") and "bf16" not in self.text("precision")


def unfused_attention(row: Row) -> bool:
    """Megatron-LM's tests name theirs; without Transformer Engine ("te") they take the framework's own products and softmax."""
    return row.said.denies("flash") or row.said.quotes("attention_backend=unfused", "gpt3_mcore_tp", "uninstall_te")


def tuned_attention(row: Row) -> bool:
    """NVIDIA's programs and llm.c take cuDNN's; others one FlashAttention for all devices, written for Ampere."""
    if row.said.denies("cudnn", "flash attention 3", "flashattention 3"):
        return False
    return row.is_nemo or (row.is_megatron and not row.said.says("deepspeed")) or row.said.says(
        "cudnn", "transformer engine", "transformerengine", "flash attention 3", "flashattention 3", "flash attn 3", "fa3 ", "llm c ")


def compiled(row: Row) -> bool:
    """JAX and Gaudi always compile; PyTorch's own fp8 products are meant to be compiled with the casts around them."""
    if row.said.denies("compil", "torch compil"):
        return False
    own_fp8 = row.said.says("torchtitan") and "fp8" in row.text("precision").lower()
    return own_fp8 or row.said.says("compil", "jax ", "maxtext", "llm c ", "dao ailab") or "gaudi" in row.text("gpu").lower()


def fused_loss(row: Row) -> bool:
    """torchtitan compiles its blocks, and the loss as well since 2025-04."""
    return compiled(row) and not (row.said.says("torchtitan") and (row.month or TITAN_LOSS_SINCE) < TITAN_LOSS_SINCE)


def copies_logits(row: Row) -> bool:
    """PyTorch's own loss does. llm-foundry takes FlashAttention's, which copies nothing; its metrics take the time of one that is not fused."""
    return not (fused_loss(row) or row.is_old or row.is_nemo or row.is_megatron or row.said.says("llm foundry"))


def overlaps_reduction(row: Row) -> bool:
    """Megatron-LM took PyTorch's overlapping reducer until pipelines came, and had none of its own before 2023-09; nor had the one that
    MegaScale compares itself with. Programs that shard weights always overlap."""
    if row.fully_sharded or row.said.says("overlap grad reduce", "readme sep 2020"):
        return True
    if row.is_old:
        return False
    without = row.said.quotes("2402.15627") or (row.month or OVERLAP_SINCE) < OVERLAP_SINCE
    return not (row.is_megatron and without)


def program(row: Row) -> str:
    said = row.said
    overlaps = overlaps_reduction(row)
    is_compiled = compiled(row)
    elementwise = is_compiled or row.is_old or row.is_nemo or row.is_megatron or said.says("nanotron")
    comm_overlap, async_tensor = "tp comm overlap", ("asynctp", "async tp")
    facts = {
        "fused_attention": not unfused_attention(row) and (said.quotes("attention_backend=flash") or not row.is_old),
        "tuned_attention": tuned_attention(row),
        "overlaps_reduction": overlaps,
        "overlaps_gather": overlaps,
        "overlaps_tensor": (row.is_nemo or said.says(comm_overlap)) and not said.denies(comm_overlap),
        "async_tensor": said.says(*async_tensor) and not said.denies(*async_tensor),
        "overlaps_tensor_backward": not row.is_old or said.quotes("2205.05198"),
        "fused_accumulation": not row.is_old or said.quotes("2205.05198", "2401.10241"),
        "splits_messages": not said.quotes("WITHOUT scatter/gather", "no-scatter-gather"),
        "recomputes_last_product": row.is_old or row.is_megatron or row.is_nemo,
        "one_ring": row.is_old and row.fully_sharded,
        "compiled": is_compiled,
        "balances_stages": said.says("nanotron"),
        "fused_residual": said.says("llm c "),
        "slices_tensors": said.says("nanotron"),
        "fused_elementwise": elementwise,
        "fused_optimizer": elementwise or said.says("torchtitan", "deepspeed"),
        "fused_loss": fused_loss(row),
        "copies_logits": copies_logits(row),
        "keeps_rows": not (row.is_old or row.is_nemo or row.is_megatron),
        "copies_gradients": said.says("nanotron") or (said.says("bigscience") and "bf16" in row.text("precision")),
        "reduces_all": said.says("bigscience"),
        "expandable_segments": said.says("torchtitan"),
        "grid_communicators": said.says("bigscience"),
    }
    return " ".join(name for name, holds in facts.items() if holds)


def sequence_parallel(row: Row) -> str:
    notes = row.text("notes")
    if "+sp" in row.text("recompute").lower() or "seq_parallel=true" in notes:
        return "yes"
    if "seq_parallel=false" in notes or row.text("tp") == "1" or row.is_old:
        return "no"
    return "yes" if row.month is None or row.month >= SEQUENCE_PARALLEL_SINCE else "no"


def schedule(row: Row) -> str:
    match = re.search(r"schedule=([^; ,]*)", row.text("notes")) or re.search(r"(interleaved|1f1b)", row.text("id"))
    name = match.group(1) if match else ""
    for begin, ours in (("zb-2p", "zero_bubble_2p"), ("zb-v", "zero_bubble_v"), ("zb", "zero_bubble"), ("gpipe", "gpipe")):
        if name.startswith(begin):
            return ours
    if name == "1f1b":
        return name
    return "interleaved" if name.startswith(("1f1b", "interleaved")) else ""


def fp8_scaling(row: Row) -> str:
    """torchao scales tensors, unless it is told. NeMo took scales of earlier steps; recipes of Megatron-Bridge find them first, on Blackwell
    of each block of 32."""
    if "fp8" not in row.text("precision").lower() and "fp4" not in row.text("precision").lower():
        return ""
    for name, words in (("row", ("rowwise",)), ("tensor", ("tensorwise",)), ("block", ("mxfp8",)), ("delayed", ("delayed",))):
        if row.said.says(*words):
            return name
    if row.said.says("torchtitan"):
        return "tensor"
    if row.said.says("megatron bridge", "megatronbridge"):
        return "block" if re.search(r"B[23]00", row.text("gpu")) else "tensor"
    return "delayed"


FRAMEWORKS = (("bigscience", "megatron-deepspeed"), ("llm foundry", "llm-foundry"), ("torchtitan", "torchtitan"), ("nanotron", "nanotron"),
              ("llm c ", "llm.c"), ("maxtext", "maxtext"), ("2401 10241", "zero-bubble"), ("1910 02054", "deepspeed"),
              ("deepspeed", "deepspeed"), ("dao ailab", "flash-attention"), ("2104 04473", "megatron-lm"), ("2205 05198", "megatron-lm"),
              ("1909 08053", "megatron-lm"))


def framework(row: Row) -> str:
    if row.is_nemo:
        return "nemo"
    source = Words(row.text("source"))
    return next((name for words, name in FRAMEWORKS if source.says(words)), "megatron-lm" if row.is_megatron else "")


def memory_by(row: Row) -> str:
    """torchtitan logs what the allocator reserved, BLOOM's log what the driver counts."""
    if row.said.says("nvidia smi"):
        return "driver"
    return "reserved" if row.said.says("torchtitan", "max reserved") else "allocated" if row.said.says("max allocated") else ""


def virtual_stages(row: Row) -> str:
    """torchtitan gives a rank two stages where it interleaves, unless it is told."""
    return "2" if row.said.says("torchtitan") and schedule(row) == "interleaved" else ""


def recompute_share(row: Row) -> str:
    """torchtitan's selective option recomputes every second product of a block."""
    return "0.5" if row.said.says("torchtitan") and row.text("recompute") == "selective" else ""


def network_gbps(row: Row) -> str:
    """Of a device: "400 Gb/s RDMA per GPU", "8xHDR200" and "4 OPA100 links/node" of a node of 8, which BLOOM had."""
    if match := re.search(r"(\d+) Gb/s RDMA per GPU", row.text("notes")):
        return match.group(1)
    if match := re.search(r"8xA100/node, (\d+) OPA100 links/node", row.text("notes")):
        return f"{100 * int(match.group(1)) / 8:g}"
    return "50" if row.said.says("bigscience") else ""


def network_gb_per_s(row: Row) -> str:
    """nanotron's 8xH100 nodes on EFA: between 4 to 64 of them the best 20th of all_reduces reached 177 to 219 GB/s a node [Ultra-Scale
    Playbook, bandwidth by number of nodes], against 320 of InfiniBand."""
    return "24" if row.said.says("nanotron") else ""


def number_said(row: Row, pattern: str) -> str:
    """"experts=8, top-k=2, EP4": the number of the pattern's group."""
    match = re.search(pattern, row.text("notes"), re.IGNORECASE)
    return match.group(1) if match else ""


def micro_batch(row: Row) -> str:
    """torchtitan's stages split the local batch into as many micro-batches as there are stages, unless it is told."""
    stages, replicas, batch = (row.text(name) for name in ("pp", "dp", "global_batch_seqs"))
    if not (row.said.says("torchtitan") and stages.isdigit() and replicas.isdigit() and batch.isdigit()) or stages == "1":
        return ""
    return str(max(1, int(batch) // int(replicas) // int(stages)))


def activation(row: Row) -> str:
    words = row.text("id") + " " + row.text("notes")
    if any(name in words for name in ("llama", "Llama", "mistral", "qwen", "swiglu=True")):
        return "swiglu"
    return "gelu" if "swiglu=False" in words else ""


def facts_of(row: Row) -> dict[str, str]:
    notes = row.text("notes")
    of_fp16 = row.is_old and "fp16" in row.text("precision")
    in_16_bits = of_fp16 or row.is_nemo or row.said.quotes("mp_mode=PURE") or row.said.says("llm c ")
    counted = re.search(r"tflops=([^;]*)", notes)
    names = (row.text("id") + " " + notes).lower()
    # Tests of a program run tiny models with deterministic kernels and say so: their memory counts, their time does not.
    not_comparable = any(text in notes for text in ("times not representative", "DO NOT")) or "functional_tests" in row.text("source")
    return {
        "program": program(row),
        "fp8_scaling": fp8_scaling(row),
        "gradient_bytes": "2" if in_16_bits else "4",
        "extra_state_bytes": "4" if of_fp16 else "0",
        "zero_stage": "0" if row.is_old else "1",
        "sequence_parallel": sequence_parallel(row),
        "schedule": schedule(row),
        "activation": activation(row),
        "tied_embeddings": "no" if "untied=true" in row.text("id") + " " + notes else "",
        "moe": "yes" if any(word in names for word in ("moe", "mixture of experts", "mixtral", "experts=", " experts")) else "",
        "flop_count": counted.group(1) if counted else "",
        "comparable": "no" if not_comparable else "",
        "memory_of": "states" if "model states only" in notes else "last_stage" if "LAST rank" in notes else "",
        "memory_unit": "GB" if "1e9 bytes" in notes else "",
        "memory_by": memory_by(row),
        "analytic": "yes" if "kind=analytic" in notes else "",
        "framework": framework(row),
        "micro_batch": micro_batch(row),
        "vp": virtual_stages(row),
        "network_gbps": network_gbps(row),
        "network_gb_per_s": network_gb_per_s(row),
        "recompute_share": recompute_share(row),
        "experts": number_said(row, r"\bexperts[ =](\d+)") or number_said(row, r"\b(\d+) experts\b"),
        "top_k": number_said(row, r"\btop[-_ ]?k?[ =](\d+)\b"),
        "expert_parallel": number_said(row, r"\bep[ =]?(\d+)\b"),
    }


class TableError(Exception):
    """A table that cannot be read as one."""


def rows_of(reader: csv.DictReader) -> list[dict[str, str]]:
    """Its rows. A row with more fields than the header has names would lose what it says beyond them."""
    rows = []
    for row in reader:
        if more := [value for value in row.pop(None, []) if value.strip()]:
            raise TableError(f"line {reader.line_num}: {len(more)} fields more than the header has: are commas in a field not quoted?")
        rows.append(row)
    return rows


def with_columns(columns: list[str], rows: list[dict[str, str]]) -> tuple[list[str], list[dict[str, str]]]:
    filled = []
    for fields in rows:
        row = Row(fields)
        filled.append(fields | {name: fields.get(name) if name in row.fields else value for name, value in facts_of(row).items()})
    return columns + [name for name in COLUMNS if name not in columns], filled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    path = parser.parse_args().table
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns, rows = with_columns(list(reader.fieldnames or []), rows_of(reader))
    except (OSError, UnicodeDecodeError, csv.Error, TableError) as error:
        print(f"add_columns.py: {path}: {error}", file=sys.stderr)
        return 3
    writer = csv.DictWriter(sys.stdout, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
