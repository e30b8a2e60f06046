// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/published/published_program.hpp"

using namespace espalier;

namespace {

// What a program is known for is read from its name, what a run did from its notes.
TEST(PublishedProgram, programs_are_told_apart) {
  const auto program = [](const std::string& source, const std::string& notes = "", const std::string& gpu = "H100",
                          const std::string& precision = "bf16") {
    return published_implementation(
        parse_csv("source,notes,gpu,precision\n\"" + source + "\",\"" + notes + "\"," + gpu + "," + precision + "\n",
                  "t")
            .rows[0]);
  };
  for (const char* const name : {"NVIDIA-NeMo/Megatron-Bridge@abc:docs/performance-summary.md 25.11", "nemo:25.04",
                                 "NeMo Framework", "megatron_bridge"}) {
    const Implementation made = program(name);
    EXPECT_TRUE(made.tuned_attention && made.overlaps_tensor && made.fused_elementwise && made.fused_optimizer) << name;
    EXPECT_EQ(made.gradient_bytes, 2) << name;
  }
  EXPECT_FALSE(program("NVIDIA/NeMo", "tp-comm-overlap off").overlaps_tensor);
  const Implementation nemotron = program("Nemotron-4 report");  // a model
  EXPECT_FALSE(nemotron.overlaps_tensor || nemotron.tuned_attention);
  for (const char* const name :
       {"NVIDIA/Megatron-LM@d98e8a64dd:README", "Megatron LM", "Megatron Core v0.8", "MegatronLM"})
    EXPECT_TRUE(program(name).tuned_attention && program(name).fused_elementwise && !program(name).overlaps_tensor)
        << name;
  const Implementation foundry = program("mosaicml/llm-foundry:scripts/train/benchmarking/README.md",
                                         "container nvcr.io/nvidia/pytorch:24.05, vllm.cc, ajax");
  EXPECT_FALSE(foundry.tuned_attention || foundry.overlaps_tensor || foundry.fused_elementwise ||
               foundry.fused_optimizer || foundry.compiled);
  EXPECT_EQ(foundry.gradient_bytes, 4);
  for (const char* const notes : {"cuDNN attention", "Transformer Engine", "FlashAttention-3", "flash-attn 3", "FA3"})
    EXPECT_TRUE(program("a report 2025", notes).tuned_attention) << notes;
  for (const char* const notes : {"FlashAttention-2", "no cuDNN", "without FlashAttention 3"})
    EXPECT_FALSE(program("a report 2025", notes).tuned_attention) << notes;
  for (const char* const notes : {"FSDP + torch.compile", "FSDP2 + compile", "compile=true"})
    EXPECT_TRUE(program("pytorch/torchtitan:docs/performance.md", notes).compiled) << notes;
  for (const char* const notes : {"", "no torch.compile", "w/o compile", "compile=false"})
    EXPECT_FALSE(program("pytorch/torchtitan:docs/performance.md", notes).compiled) << notes;
  EXPECT_TRUE(program("TorchTitan arXiv:2410.06511", "", "H100", "fp8").compiled);
  EXPECT_TRUE(program("some report", "", "Gaudi2").compiled);
  EXPECT_FALSE(program("arXiv:2106.00001", "without FlashAttention").fused_attention);
  EXPECT_FALSE(program("arXiv:2106.00001", "splash").fused_attention);
  EXPECT_TRUE(program("arXiv:2106.00001", "FlashAttention").fused_attention);
  // Megatron-LM had no overlap of its own before 2023-09.
  EXPECT_FALSE(program("Megatron-LM 2023-03").overlaps_reduction);
  EXPECT_TRUE(program("Megatron-LM 2024-03").overlaps_reduction);
  EXPECT_TRUE(program("Megatron-LM 2023-03", "--overlap-grad-reduce").overlaps_reduction);
  EXPECT_FALSE(program("arXiv:2402.15627 Table 2", "Megatron-LM baseline").overlaps_reduction);
  EXPECT_TRUE(program("arXiv:2402.15627 Table 2", "MegaScale").overlaps_reduction);
}

// Between 2021 and 2024 attention became fused and stages stopped to wait for their reduction.
TEST(PublishedProgram, a_date_says_which_program) {
  const auto of = [](const std::string& column, const std::string& date) {
    return parse_csv("source,precision," + column + "\na report,fp16," + date + "\n", "t").rows[0];
  };
  EXPECT_FALSE(published_implementation(of("date", "2021-03-17")).fused_attention);
  EXPECT_TRUE(published_implementation(of("date", "2024-03")).fused_attention);
  EXPECT_TRUE(published_implementation(of("year", "2024")).fused_attention);
  EXPECT_EQ(publication_month(of("date", "2024-03")), 2403);
  EXPECT_EQ(publication_month(of("published", "2024/11/02")), 2411);
  EXPECT_EQ(publication_month(of("year", "2024")), 2406);
  EXPECT_EQ(publication_month(of("date", "last spring")), std::nullopt);
}

TEST(PublishedProgram, programs_are_told_by_date_and_notes) {
  EXPECT_EQ(publication_month("arXiv:2104.04473 Table 1"), 2104);
  EXPECT_EQ(publication_month("NVIDIA/Megatron-LM README Sep-2020, images"), 2006);
  EXPECT_EQ(publication_month("owner/repository@5281919420"), std::nullopt);
  const auto program = [](const std::string& source, const std::string& precision, const std::string& notes) {
    const auto rows = parse_csv("source,precision,notes\n" + source + "," + precision + "," + notes + "\n", "t").rows;
    return published_implementation(rows[0]);
  };
  EXPECT_FALSE(program("arXiv:2104.04473", "fp16-mixed", "").fused_attention);
  EXPECT_TRUE(program("arXiv:2307.1", "bf16", "").fused_attention);
  EXPECT_TRUE(program("x", "bf16", "attention_backend=flash").fused_attention);
  EXPECT_FALSE(program("x", "bf16", "attention_backend=unfused").fused_attention);
  EXPECT_TRUE(program("x", "bf16", "tp-comm-overlap on").overlaps_tensor);
  EXPECT_FALSE(program("arXiv:2104.04473", "fp16-mixed", "interleaved WITHOUT scatter/gather").splits_messages);
}

}  // namespace
