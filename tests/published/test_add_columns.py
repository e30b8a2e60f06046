#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Tests add_columns.py: what a program is known for is read from its name, what a run did from its notes."""
import csv
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from add_columns import Row, Words, facts_of, publication_month

TOOL = Path(__file__).with_name("add_columns.py")


def facts(source: str = "x", notes: str = "", **others: str) -> dict[str, str]:
    return facts_of(Row({"source": source, "notes": notes, "gpu": "H100", "precision": "bf16"} | others))


def program(source: str = "x", notes: str = "", **others: str) -> set[str]:
    return set(facts(source, notes, **others)["program"].split())


class TestWords(unittest.TestCase):
    def test_a_phrase_is_words_in_a_row(self):
        said = Words("NVIDIA-NeMo/Megatron-Bridge | torch.compiled, Flash-Attention 3")
        self.assertTrue(said.says("megatron bridge"))
        self.assertTrue(said.says("nothing", "flash attention 3"))
        self.assertTrue(said.says("compil"))
        for phrase in ("compil ", "bridge megatron", "emo", "flash attention 3 more"):
            self.assertFalse(said.says(phrase), phrase)
        self.assertFalse(Words("").says("a"))

    def test_what_is_denied_is_not_said(self):
        for text in ("no torch.compile", "without torch compile", "w/o torch.compile", "not torch compile", "torch compile off",
                     "torch_compile=false", "torch.compile disabled"):
            self.assertFalse(Words(text).says("torch compile"), text)
            self.assertTrue(Words(text).denies("torch compile"), text)
        both = Words("no compile in the first run; the second with compile")
        self.assertTrue(both.says("compile") and both.denies("compile"))
        self.assertFalse(Words("no recompute, compile").denies("compile"))

    def test_tags_are_quoted_letter_by_letter(self):
        said = Words("mp_mode=PURE, arXiv 2401.10241")
        self.assertTrue(said.quotes("mp_mode=PURE") and said.quotes("2401.10241"))
        self.assertFalse(said.quotes("mp_mode=pure"))


class TestFacts(unittest.TestCase):
    def test_what_programs_keep(self):
        self.assertLess({"keeps_rows", "copies_gradients"}, program("huggingface/nanotron"))
        self.assertFalse({"keeps_rows", "copies_gradients", "reduces_all"} & program("NVIDIA/Megatron-LM 2024"))
        self.assertLess({"copies_gradients", "reduces_all"}, program("bigscience-workshop/bigscience", precision="bf16"))
        self.assertEqual(facts("bigscience-workshop/bigscience", "")["network_gbps"], "50")

    def test_experts(self):
        said = facts("x", "64 experts, top-k=6, EP8")
        self.assertEqual([said[name] for name in ("experts", "top_k", "expert_parallel")], ["64", "6", "8"])
        self.assertEqual(facts("x", "experts=8; top_k=2")["top_k"], "2")
        self.assertEqual(facts("x", "top-1 accuracy, step 4")["expert_parallel"], "")

    def test_what_scales_fp8(self):
        for source, gpu, notes, scaling in (("NVIDIA/NeMo", "H100", "", "delayed"), ("NVIDIA-NeMo/Megatron-Bridge", "H100", "", "tensor"),
                                            ("NVIDIA-NeMo/Megatron-Bridge", "GB200", "", "block"), ("pytorch/torchtitan", "H200", "", "tensor"),
                                            ("pytorch/torchtitan", "H200", "float8 rowwise", "row"), ("x", "B200", "MXFP8", "block")):
            self.assertEqual(facts(source, notes, gpu=gpu, precision="fp8")["fp8_scaling"], scaling, (source, gpu, notes))
        self.assertEqual(facts("pytorch/torchtitan", "rowwise")["fp8_scaling"], "")

    def test_programs_are_told_apart(self):
        self.assertLess({"slices_tensors", "balances_stages"}, program("huggingface/nanotron"))
        self.assertIn("fused_residual", program("karpathy/llm.c@f1e2:README.md"))
        self.assertFalse({"slices_tensors", "balances_stages", "fused_residual"} & program("NVIDIA/Megatron-LM"))
        for name in ("NVIDIA-NeMo/Megatron-Bridge@abc:docs/performance-summary.md 25.11", "nemo:25.04", "NeMo Framework", "megatron_bridge"):
            self.assertLess({"tuned_attention", "overlaps_tensor", "fused_elementwise", "fused_optimizer"}, program(name), name)
            self.assertEqual(facts(name)["gradient_bytes"], "2")
        self.assertNotIn("overlaps_tensor", program("NVIDIA/NeMo", "tp-comm-overlap off"))
        self.assertFalse({"overlaps_tensor", "tuned_attention"} & program("Nemotron-4 report"))  # a model
        for name in ("NVIDIA/Megatron-LM@d98e8a64dd:README", "Megatron LM", "Megatron Core v0.8", "MegatronLM"):
            self.assertLess({"tuned_attention", "fused_elementwise"}, program(name), name)
            self.assertNotIn("overlaps_tensor", program(name), name)
        foundry = ("mosaicml/llm-foundry:scripts/train/benchmarking/README.md", "container nvcr.io/nvidia/pytorch:24.05, vllm.cc, ajax")
        self.assertFalse({"tuned_attention", "overlaps_tensor", "fused_elementwise", "fused_optimizer", "compiled"} & program(*foundry))
        self.assertEqual(facts(*foundry)["gradient_bytes"], "4")

    def test_attention(self):
        for notes in ("cuDNN attention", "Transformer Engine", "FlashAttention-3", "flash-attn 3", "FA3"):
            self.assertIn("tuned_attention", program("a report 2025", notes), notes)
        for notes in ("FlashAttention-2", "no cuDNN", "without FlashAttention 3"):
            self.assertNotIn("tuned_attention", program("a report 2025", notes), notes)
        for notes, fused in (("without FlashAttention", False), ("splash", False), ("FlashAttention", True)):
            self.assertEqual("fused_attention" in program("arXiv:2106.00001", notes), fused, notes)
        self.assertNotIn("fused_attention", program("arXiv:2104.04473", precision="fp16-mixed"))
        self.assertIn("fused_attention", program("arXiv:2307.1"))
        self.assertIn("fused_attention", program(notes="attention_backend=flash"))
        self.assertNotIn("fused_attention", program(notes="attention_backend=unfused"))

    def test_compilation(self):
        torchtitan = "pytorch/torchtitan:docs/performance.md"
        for notes in ("FSDP + torch.compile", "FSDP2 + compile", "compile=true"):
            self.assertIn("compiled", program(torchtitan, notes), notes)
        for notes in ("", "no torch.compile", "w/o compile", "compile=false"):
            self.assertNotIn("compiled", program(torchtitan, notes), notes)
        self.assertIn("compiled", program("TorchTitan arXiv:2410.06511", precision="fp8"))
        self.assertIn("compiled", program("some report", gpu="Gaudi2"))

    def test_overlap(self):
        """Megatron-LM had none of its own before 2023-09."""
        for source, notes, overlaps in (("Megatron-LM 2023-03", "", False), ("Megatron-LM 2024-03", "", True),
                                        ("Megatron-LM 2023-03", "--overlap-grad-reduce", True),
                                        ("arXiv:2402.15627 Table 2", "Megatron-LM baseline", False),
                                        ("arXiv:2402.15627 Table 2", "MegaScale", True)):
            self.assertEqual("overlaps_reduction" in program(source, notes), overlaps, (source, notes))
        self.assertIn("overlaps_tensor", program(notes="tp-comm-overlap on"))
        self.assertNotIn("splits_messages", program("arXiv:2104.04473", "interleaved WITHOUT scatter/gather"))

    def test_dates(self):
        for text, month in (("arXiv:2104.04473 Table 1", 2104), ("NVIDIA/Megatron-LM README Sep-2020, images", 2006),
                            ("owner/repository@5281919420", None), ("2024-03", 2403), ("2024/11/02", 2411), ("2024", 2406),
                            ("last spring", None)):
            self.assertEqual(publication_month(text), month, text)
        for column, date, fused in (("date", "2021-03-17", False), ("date", "2024-03", True), ("year", "2024", True)):
            self.assertEqual("fused_attention" in program("a report", precision="fp16", **{column: date}), fused, date)

    def test_other_columns(self):
        self.assertEqual(facts(notes="8 experts")["moe"], "yes")
        self.assertEqual(facts(id="Mixtral-8x7B")["moe"], "yes")
        self.assertEqual(facts(id="llama-7b")["activation"], "swiglu")
        self.assertEqual(facts(notes="swiglu=False")["activation"], "gelu")
        self.assertEqual(facts(notes="schedule=zb-2p; x")["schedule"], "zero_bubble_2p")
        self.assertEqual(facts(notes="schedule=1f1b")["schedule"], "1f1b")
        self.assertEqual(facts(notes="schedule=1f1b-interleaved")["schedule"], "interleaved")
        self.assertEqual(facts(notes="kind=exact; tflops=MODEL_EQ7; more")["flop_count"], "MODEL_EQ7")
        self.assertEqual(facts(notes="times not representative")["comparable"], "no")
        self.assertEqual(facts(tp="1")["sequence_parallel"], "no")
        self.assertEqual(facts("arXiv:2104.04473", tp="8")["sequence_parallel"], "no")
        self.assertEqual(facts("arXiv:2307.1", tp="8")["sequence_parallel"], "yes")

    def test_frameworks(self):
        for source, name in (("NVIDIA/NeMo@abc", "nemo"), ("bigscience-workshop/bigscience@9e: Megatron", "megatron-deepspeed"),
                             ("arXiv:2104.04473 Table 1", "megatron-lm"), ("NVIDIA/Megatron-LM@d9", "megatron-lm"),
                             ("arXiv:2401.10241", "zero-bubble"), ("mosaicml/llm-foundry@8c", "llm-foundry"), ("a report", "")):
            self.assertEqual(facts(source)["framework"], name, source)
        self.assertEqual(facts("a report", "faster than nanotron")["framework"], "")

    def test_who_counted_the_memory(self):
        self.assertEqual(facts(notes="mem = nvidia-smi snapshot")["memory_by"], "driver")
        self.assertEqual(facts("pytorch/torchtitan")["memory_by"], "reserved")
        self.assertEqual(facts(notes="mem-max-allocated-bytes")["memory_by"], "allocated")
        self.assertEqual(facts()["memory_by"], "")

    def test_micro_batches_of_torchtitan(self):
        of_titan = facts("pytorch/torchtitan", pp="8", dp="8", global_batch_seqs="256")
        self.assertEqual(of_titan["micro_batch"], "4")
        self.assertEqual(facts("pytorch/torchtitan", pp="1", dp="8", global_batch_seqs="256")["micro_batch"], "")
        self.assertEqual(facts("arXiv:2307.1", pp="8", dp="8", global_batch_seqs="256")["micro_batch"], "")


class TestTool(unittest.TestCase):
    def run_on(self, text: bytes) -> subprocess.CompletedProcess:
        with tempfile.NamedTemporaryFile(suffix=".csv") as file:
            file.write(text)
            file.flush()
            return subprocess.run([sys.executable, TOOL, file.name], capture_output=True, text=True, check=False)

    def test_what_is_filled_stays_and_a_second_run_changes_nothing(self):
        first = self.run_on(b"id,zero_stage,notes,moe\r\na,,\"MoE, 8 experts\",\r\nb,3,,no\r\n")
        self.assertEqual(first.returncode, 0, first.stderr)
        rows = list(csv.DictReader(first.stdout.splitlines()))
        self.assertEqual([row["zero_stage"] for row in rows], ["1", "3"])
        self.assertEqual([row["moe"] for row in rows], ["yes", "no"])
        self.assertEqual(rows[0]["notes"], "MoE, 8 experts")
        self.assertEqual(self.run_on(first.stdout.encode()).stdout, first.stdout)

    def test_rows_with_more_fields_than_the_header_are_refused(self):
        run = self.run_on(b"id,notes\na,fine\nb,one,two,three\n")
        self.assertEqual((run.returncode, run.stdout), (3, ""))
        self.assertIn("line 3: 2 fields more than the header has", run.stderr)

    def test_what_is_no_table(self):
        self.assertEqual(self.run_on(b"\xff\xfe\x00").returncode, 3)
        missing = subprocess.run([sys.executable, TOOL, "no_such.csv"], capture_output=True, text=True, check=False)
        self.assertEqual(missing.returncode, 3)
        self.assertIn("no_such.csv", missing.stderr)


if __name__ == "__main__":
    unittest.main()
