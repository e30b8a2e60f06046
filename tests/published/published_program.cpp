// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/published_program.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "core/error.hpp"

namespace espalier {
namespace {

struct Word {
  const char* name;
  bool Implementation::*fact;
};

constexpr std::array words{Word{"fused_attention", &Implementation::fused_attention},
                           Word{"tuned_attention", &Implementation::tuned_attention},
                           Word{"overlaps_reduction", &Implementation::overlaps_reduction},
                           Word{"overlaps_gather", &Implementation::overlaps_gather},
                           Word{"overlaps_tensor", &Implementation::overlaps_tensor},
                           Word{"overlaps_tensor_backward", &Implementation::overlaps_tensor_backward},
                           Word{"fused_accumulation", &Implementation::fused_accumulation},
                           Word{"splits_messages", &Implementation::splits_messages},
                           Word{"recomputes_last_product", &Implementation::recomputes_last_product},
                           Word{"one_ring", &Implementation::one_ring},
                           Word{"compiled", &Implementation::compiled},
                           Word{"graphed", &Implementation::graphed},
                           Word{"slices_tensors", &Implementation::slices_tensors},
                           Word{"fused_optimizer", &Implementation::fused_optimizer},
                           Word{"sends_rows_once", &Implementation::sends_rows_once},
                           Word{"overlaps_experts", &Implementation::overlaps_experts},
                           Word{"reduces_all", &Implementation::reduces_all}};

struct KernelWord {
  const char* name;
  bool PublishedKernels::*fact;
};
constexpr std::array kernel_words{KernelWord{"fused_residual", &PublishedKernels::fused_residual},
                                  KernelWord{"fused_elementwise", &PublishedKernels::fused_elementwise},
                                  KernelWord{"fused_loss", &PublishedKernels::fused_loss}};

struct MemoryWord {
  const char* name;
  bool PublishedMemory::*fact;
};
constexpr std::array memory_words{MemoryWord{"copies_logits", &PublishedMemory::copies_logits},
                                  MemoryWord{"keeps_rows", &PublishedMemory::keeps_rows},
                                  MemoryWord{"copies_gradients", &PublishedMemory::copies_gradients}};

// Of a tensor collective that PyTorch cuts up: without it steps take 1.04 to 1.16 times as long, 1.09 in the median
// [torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md]. The same steps have 0.2 of such collectives.
constexpr double async_tensor_share = 0.4;
constexpr double reserved_times = 1.1;     // of what is asked of an allocator
constexpr double expandable_times = 1.02;  // the same where its segments grow: gaps are pages of 2 MiB
constexpr double library_bytes = 1.5e9;  // of context, libraries and their buffers, on A100 [bigscience, tr11-176B-ml]
constexpr double communicator_bytes =
    0.4e9;  // of NCCL: buffers of 4 MiB and more for each of 16 to 32 channels, both ways
// DeepSpeed's grid of ranks has groups of its own beside those of Megatron-LM, also of each pair of neighbouring stages
// [deepspeed/runtime/pipe/topology.py].
constexpr double grid_communicators = 3;  // for each axis
// Of the rate of products with one scale a tensor. Steps take 1.05, 1.14 and 1.21 times as long on MI300X, H100 and
// B200 [torchao, float8 and mx_formats].
constexpr double row_scaled_share = 0.8;
constexpr const char* program_of_today =
    "fused_attention overlaps_reduction overlaps_gather overlaps_tensor_backward fused_accumulation splits_messages";

[[noreturn]] void throw_unknown(const CsvRow& row, const std::string& column, const std::string& got,
                                const std::string& wanted) {
  throw Error(ExitCode::data,
              {.what = column + " is unknown", .where = row.where(), .got = got, .wanted = wanted, .todo = {}});
}

// Words that are no switch of these.
bool set_constant(const std::string& word, PublishedProgram& made) {
  if (word == "async_tensor") {
    made.implementation.overlaps_tensor = true;
    made.implementation.overlapped_share = async_tensor_share;
  } else if (word == "expandable_segments")
    made.memory.reserved_times = expandable_times;
  else if (word == "balances_stages")
    made.balances_stages = true;
  else if (word == "grid_communicators")
    made.memory.communicator_bytes = grid_communicators * communicator_bytes;
  else
    return false;
  return true;
}

// What fp8 operands are scaled by. Where it is not the largest of earlier steps it is found first: 2 bytes read more.
// By row, operands are cast once more for the transposed product, whose rows are columns.
void set_fp8_scaling(const CsvRow& row, Implementation& made) {
  require_word(row, "fp8_scaling", {"delayed", "tensor", "row", "block"});
  const std::string scaling = row.text("fp8_scaling");
  if (scaling == "tensor" || scaling == "block")
    made.cast_bytes = 6;
  if (scaling == "row") {
    made.cast_bytes = 8;
    made.fp8_matmul_efficiency = row_scaled_share;
    made.casts_weights = true;
  }
}

// One expert is a dense model.
Experts published_experts(const CsvRow& row) {
  const auto count = [&](const char* column) { return static_cast<int>(row.whole(column).value_or(0)); };
  const int experts = std::max(count("experts"), count("num_experts"));
  if (experts < 2)
    return {};
  return {.count = experts, .of_token = std::max(1, count("top_k")), .parallel = std::max(1, count("expert_parallel"))};
}

}  // namespace

PublishedProgram published_program(const CsvRow& row) {
  PublishedProgram made{.implementation = {},
                        .memory = {.reserved_times = reserved_times, .communicator_bytes = communicator_bytes},
                        .kernels = {}};
  Implementation& implementation = made.implementation;
  for (const Word& word : words)
    implementation.*word.fact = false;
  const std::string written = row.has("program") ? row.text("program") : program_of_today;
  std::istringstream text(written == "none" ? "" : written);
  for (std::string name; text >> name;) {
    const auto set = [&](const auto& known, auto& facts) {
      const auto found = std::ranges::find_if(known, [&](const auto& word) { return word.name == name; });
      if (found != known.end())
        facts.*found->fact = true;
      return found != known.end();
    };
    if (!set_constant(name, made) && !set(words, implementation) && !set(kernel_words, made.kernels) &&
        !set(memory_words, made.memory))
      throw_unknown(row, "a word of program", name, "the words of tests/published/README.md");
  }
  require_word(row, "memory_by", {"allocated", "reserved", "driver"});
  if (!row.has("memory_by") || row.text("memory_by") == "allocated")
    made.memory.reserved_times = 1;
  if (row.text("memory_by") != "driver")
    made.memory.communicator_bytes = 0;
  else
    made.memory.library_bytes = library_bytes;
  implementation.recomputes_attention = true;
  implementation.shards_tables = true;
  require_word(row, "gradient_bytes", {"2", "4"});
  implementation.gradient_bytes = row.text("gradient_bytes") == "2" ? 2 : 4;
  made.memory.extra_state_bytes = static_cast<int>(row.whole("extra_state_bytes").value_or(0));
  implementation.experts = published_experts(row);
  set_fp8_scaling(row, implementation);
  return made;
}

// In arrays of 16 bits.
void set_arrays(const PublishedKernels& kernels, const ModelConfig& model, Implementation& made) {
  MoreArrays forward, backward;
  if (!kernels.fused_elementwise) {
    // Two RMSNorms, each as widening, square, mean, product, narrowing, weight; rotary positions as widening, complex
    // product, narrowing; gates as activation and product. Backward moves twice that.
    forward.stream = model.norm == Norm::rmsnorm ? 32 : 0;
    forward.qk = model.positions == Positions::rotary ? 8 : 0;
    forward.ffn = model.gated() ? 2 : 0;
    backward = MoreArrays{.stream = 2 * forward.stream, .qk = 2 * forward.qk, .ffn = 2 * forward.ffn};
  }
  for (MoreArrays* const pass : {&forward, &backward}) {
    if (model.residual_dropout > 0)
      pass->stream += 1;  // two masks of bytes
    if (!kernels.fused_residual)
      pass->qkv = 2;  // heads to the front, and back
    if (!kernels.fused_loss)
      pass->logits = 6;  // in fp32: cast, maximum, exponentials, sum; gradient, cast
  }
  if (kernels.fused_residual) {
    forward.stream -= 2;   // the norms need not read the sums
    backward.stream -= 4;  // both gradients of a norm come from one reading
  }
  made.more_forward = forward;
  made.more_backward = backward;
}

void require_word(const CsvRow& row, const std::string& column, const std::vector<std::string>& words) {
  if (row.has(column) && std::ranges::find(words, row.text(column)) == words.end())
    throw_unknown(row, column, row.text(column), fmt::format("{}", fmt::join(words, " or ")));
}

std::optional<bool> yes_or_no(const CsvRow& row, const std::string& column) {
  require_word(row, column, {"yes", "no"});
  return row.has(column) ? std::optional(row.text(column) == "yes") : std::nullopt;
}

}  // namespace espalier
