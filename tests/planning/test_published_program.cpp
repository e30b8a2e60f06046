// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "io/file.hpp"
#include "models/presets.hpp"
#include "tests/published/published_case.hpp"
#include "tests/published/published_program.hpp"

using namespace espalier;

namespace {

// Without its columns, a program in PyTorch of today.
TEST(PublishedProgram, is_told_by_columns) {
  const auto program = [](const std::string& columns, const std::string& fields) {
    return published_program(parse_csv("id," + columns + "\nx," + fields + "\n", "t").rows[0]);
  };
  const Implementation today = program("layers", "1").implementation;
  EXPECT_TRUE(today.fused_attention && today.overlaps_reduction && today.splits_messages);
  EXPECT_FALSE(today.tuned_attention || today.compiled || today.one_ring);
  EXPECT_EQ(today.gradient_bytes, 4);
  const PublishedProgram all = program("program,gradient_bytes,extra_state_bytes", "compiled one_ring,2,4");
  const Implementation& told = all.implementation;
  EXPECT_TRUE(told.compiled && told.one_ring);
  EXPECT_FALSE(told.fused_attention || told.overlaps_reduction);
  EXPECT_EQ(told.gradient_bytes, 2);
  EXPECT_EQ(all.memory.extra_state_bytes, 4);
  const Implementation none = program("program", "none").implementation;
  EXPECT_FALSE(none.fused_attention || none.overlaps_reduction || none.splits_messages);
  const auto why_not = [](const std::string& column, const std::string& field) {
    const std::string table =
        "id,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,global_batch_seqs,micro_batch,iter_time_s," + column +
        "\nx,24,2048,16,51200,2048,A100-80GB,64,2,1,64,1,10," + field + "\n";
    return price_case(read_cases(table, "table.csv").cases.front()).published.why_not;
  };
  EXPECT_EQ(why_not("program", "fused_attention"), "");
  EXPECT_EQ(why_not("program", "fused_attention quick"), "a word of program is unknown: quick");
  EXPECT_EQ(why_not("program", "none"), "");
  EXPECT_EQ(why_not("gradient_bytes", "3"), "gradient_bytes is unknown: 3");
  EXPECT_EQ(why_not("zero_stage", "shards"), "ZeRO stage shards is unknown (0 to 3, FSDP, none)");
  EXPECT_EQ(why_not("sequence_parallel", "maybe"), "sequence_parallel is unknown: maybe");
  EXPECT_EQ(why_not("schedule", "zigzag"), "schedule zigzag is unknown");
  EXPECT_EQ(why_not("comparable", "no"), "its time is not to be compared (column comparable)");
}

// Beyond the kernels of `train`, in arrays of the activations.
TEST(PublishedProgram, kernels_that_are_not_fused_move_more) {
  const auto arrays = [](const PublishedKernels& kernels, const char* preset, double dropout) {
    ModelConfig model = model_preset(preset);
    model.residual_dropout = dropout;
    Implementation program;
    set_arrays(kernels, model, program);
    const auto fields = [](const MoreArrays& more) {
      return std::vector<double>{more.stream, more.qkv, more.qk, more.ffn, more.logits};
    };
    return std::pair(fields(program.more_forward), fields(program.more_backward));
  };
  using Both = std::pair<std::vector<double>, std::vector<double>>;
  EXPECT_EQ(arrays({}, "llama3-8b", 0), Both({32, 2, 8, 2, 6}, {64, 2, 16, 4, 6}));
  EXPECT_EQ(arrays({}, "gpt2-124m", 0.1), Both({1, 2, 0, 0, 6}, {1, 2, 0, 0, 6}));
  EXPECT_EQ(arrays({.fused_residual = true, .fused_elementwise = true, .fused_loss = true}, "llama3-8b", 0),
            Both({-2, 0, 0, 0, 0}, {-4, 0, 0, 0, 0}));
}

// A description is for people: the same rows, described otherwise, have the same predictions.
TEST(PublishedProgram, descriptions_decide_nothing) {
  for (const char* const table :
       {ESPALIER_PUBLISHED_ROWS, ESPALIER_OTHER_ROWS, ESPALIER_EXPERT_ROWS, ESPALIER_FP8_ROWS}) {
    const CsvTable read = parse_csv(read_file(table, ExitCode::data), table);
    for (const CsvRow& row : read.rows) {
      std::map<std::string, std::string> fields;
      for (const std::string& column : read.columns)
        if (row.has(column))
          fields[column] = row.text(column);
      const PricedCase mine = price_case(read_case(row));
      for (const char* const words :
           {"",
            "arXiv:1910.02054 NVIDIA-NeMo Megatron llama swiglu=True, torch.compile, cuDNN, tp-comm-overlap, "
            "mp_mode=PURE, schedule=gpipe, kind=analytic, model states only, 1e9 bytes, LAST rank",
            "arXiv:2401.10241 mixtral MoE experts=8, functional_tests DO NOT, no flash, tflops=MODEL_EQ7, untied=true, "
            "seq_parallel=false, WITHOUT scatter/gather, attention_backend=unfused"}) {
        for (const char* const column : {"id", "source", "notes"})
          fields[column] = words;
        const PricedCase other = price_case(read_case(CsvRow(fields, "t", 1)));
        const std::string id = row.text("id");
        EXPECT_EQ(other.predicted_seconds, mine.predicted_seconds) << id;
        EXPECT_EQ(other.predicted_bytes, mine.predicted_bytes) << id;
        EXPECT_EQ(other.published.measured_seconds, mine.published.measured_seconds) << id;
        EXPECT_EQ(other.published.measured_bytes, mine.published.measured_bytes) << id;
        EXPECT_EQ(other.published.timed, mine.published.timed) << id;
        EXPECT_EQ(other.published.analytic, mine.published.analytic) << id;
        EXPECT_EQ(other.published.why_not, mine.published.why_not) << id;
      }
    }
  }
}

TEST(PublishedProgram, interleaved_with_one_virtual_stage_is_one_forward_one_backward) {
  const PricedCase read = price_case(std::move(
      read_cases(
          "id,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,recompute,"
          "schedule,vp,iter_time_s\nx,24,2048,16,51200,2048,A100-80GB,64,1,2,32,64,1,bf16,full,interleaved,1,10\n",
          "table.csv")
          .cases.front()));
  ASSERT_TRUE(read.price) << read.published.why_not;
  EXPECT_EQ(read.price->layout.schedule, ScheduleKind::one_f_one_b);
}

}  // namespace
