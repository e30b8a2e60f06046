// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/published_program.hpp"

#include <algorithm>
#include <cctype>

#include "planning/strings.hpp"

namespace espalier {
namespace {

constexpr int fused_since = 2206;     // FlashAttention: arXiv 2205.14135
constexpr int sequence_since = 2206;  // sequence parallelism: arXiv 2205.05198

std::string words_of(const CsvRow& row) { return row.text("id") + " " + row.text("source") + " " + row.text("notes"); }

bool digits_at(const std::string& text, std::size_t at, std::size_t count) {
  if (at + count > text.size())
    return false;
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(at),
                     text.begin() + static_cast<std::ptrdiff_t>(at + count),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Of "2023-05" and "2023/5/17", where the year ends at `at`; without one the middle of the year.
int month_behind(const std::string& text, std::size_t at) {
  constexpr int middle = 6;
  if (at >= text.size() || (text[at] != '-' && text[at] != '/') || !digits_at(text, at + 1, 1))
    return middle;
  const int month = std::stoi(text.substr(at + 1, 2));
  return month >= 1 && month <= 12 ? month : middle;
}

// Programs that never ran fused attention although newer than it.
bool unfused_program(const std::string& words) {
  return contains(words, "2401.10241")      // zero bubble: keeps s b (34 h + 5 a s) a layer
         || contains(words, "2211.05100");  // BLOOM: Megatron-DeepSpeed with its fused softmax
}

bool names_any(const std::string& words, std::initializer_list<const char*> names) {
  const std::string small = lower_case(words);
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return contains(small, name); });
}

// Its recipes for speed reduce gradients in 16 bits and cut tensor collectives up to hide them.
bool is_nemo(const std::string& words) { return contains(words, "NeMo") || names_any(words, {"megatron-bridge"}); }

bool of_nvidia(const std::string& words) {
  return is_nemo(words) || names_any(words, {"nvidia/", "megatron-lm", "megatron-core", "transformerengine"});
}

// NVIDIA's programs and llm.c take cuDNN's attention; others one FlashAttention for all devices, written for Ampere.
bool tuned_attention(const std::string& words) {
  return of_nvidia(words) || names_any(words, {"cudnn", "flashattention-3", "flash-attention-3", "llm.c"});
}

// JAX and Gaudi always compile; PyTorch's own fp8 products are meant to be compiled with the casts around them.
bool compiled(const CsvRow& row) {
  const std::string words = words_of(row);
  return names_any(words, {"llm.c", "dao-ailab/flash-attention", "torch.compile", "jax", "maxtext"}) ||
         names_any(row.text("gpu"), {"gaudi"}) ||
         (contains(words, "torchtitan") && contains(lower_case(row.text("precision")), "fp8"));
}

// Megatron-LM's tests name theirs; without Transformer Engine ("te") they take the framework's own products and
// softmax.
bool says_unfused(const std::string& words) {
  const std::string small = lower_case(words);
  return contains(small, "without flash") || contains(small, "no flash") ||
         contains(words, "attention_backend=unfused") || contains(words, "gpt3_mcore_tp") ||
         contains(words, "uninstall_te");
}

bool is_old(const CsvRow& row) {
  const std::string words = words_of(row);
  if (contains(words, "lash"))  // FlashAttention, flash-attention
    return false;
  if (unfused_program(words))
    return true;
  if (const std::optional<int> month = publication_month(row))
    return *month < fused_since;
  return contains(row.text("precision"), "fp16") && !contains(row.text("precision"), "bf16");
}

bool fully_sharded(const CsvRow& row) {
  return contains(row.text("zero_stage"), "3") || contains(lower_case(row.text("zero_stage")), "fsdp");
}

}  // namespace

std::optional<int> publication_month(const std::string& source) {
  for (std::size_t at = source.find("arXiv:"); at != std::string::npos; at = source.find("arXiv:", at + 1))
    if (digits_at(source, at + 6, 4) && source.size() > at + 10 && source[at + 10] == '.')
      return std::stoi(source.substr(at + 6, 4));
  for (std::size_t at = 0; at + 4 <= source.size(); ++at)
    if (source.compare(at, 2, "20") == 0 && digits_at(source, at, 4) &&
        (at == 0 || !std::isalnum(static_cast<unsigned char>(source[at - 1]))) &&
        (at + 4 == source.size() || !std::isalnum(static_cast<unsigned char>(source[at + 4]))))
      if (const int year = std::stoi(source.substr(at + 2, 2)); year >= 17 && year <= 35)
        return 100 * year + month_behind(source, at + 4);
  return std::nullopt;
}

std::optional<int> publication_month(const CsvRow& row) {
  for (const char* const column : {"date", "published", "year"})
    if (const std::optional<int> month = publication_month(row.text(column)))
      return month;
  return publication_month(row.text("source"));
}

Implementation published_implementation(const CsvRow& row) {
  const std::string words = words_of(row);
  const bool old = is_old(row);
  Implementation made;
  made.fused_attention = says_unfused(words) ? false : contains(words, "attention_backend=flash") || !old;
  made.tuned_attention = tuned_attention(words);
  made.recomputes_attention = true;
  // Megatron-LM took PyTorch's overlapping reducer until pipelines came.
  made.overlaps_reduction = !old || fully_sharded(row) || contains(words, "README Sep-2020");
  made.overlaps_gather = made.overlaps_reduction;
  made.overlaps_tensor = is_nemo(words) || names_any(words, {"tp-comm-overlap on", "asynctp"});
  made.overlaps_tensor_backward = !old || contains(words, "2205.05198");
  made.fused_accumulation = !old || contains(words, "2205.05198") || contains(words, "2401.10241");
  made.splits_messages = !contains(words, "WITHOUT scatter/gather") && !contains(words, "no-scatter-gather");
  made.recomputes_last_product = old || contains(words, "Megatron") || is_nemo(words);
  made.one_ring = old && fully_sharded(row);
  made.arenas_of_train = false;
  made.compiled = compiled(row);
  made.fused_elementwise = made.compiled || old || of_nvidia(words) || names_any(words, {"megatron"});
  made.fused_optimizer = made.fused_elementwise || contains(words, "torchtitan");
  made.fused_loss = made.compiled;
  made.gradient_bytes = contains(row.text("precision"), "fp16") && old ? 2 : 4;
  made.extra_state_bytes = made.gradient_bytes == 2 ? 4 : 0;
  if (contains(words, "mp_mode=PURE") || contains(words, "llm.c") || is_nemo(words))
    made.gradient_bytes = 2;
  return made;
}

std::optional<int> published_zero_stage(const CsvRow& row) { return is_old(row) ? 0 : 1; }

bool published_sequence_parallel(const CsvRow& row) {
  if (contains(lower_case(row.text("recompute")), "+sp") || contains(row.text("notes"), "seq_parallel=true"))
    return true;
  if (contains(row.text("notes"), "seq_parallel=false") || row.text("tp") == "1")
    return false;
  const std::optional<int> month = publication_month(row);
  return !is_old(row) && (!month || *month >= sequence_since);
}

std::optional<PlanSchedule> published_schedule(const CsvRow& row) {
  const std::string notes = row.text("notes");
  const std::size_t at = notes.find("schedule=");
  if (at != std::string::npos) {
    const std::string name = notes.substr(at + 9, notes.find_first_of("; ,", at) - at - 9);
    if (name.starts_with("zb-2p"))
      return PlanSchedule::zero_bubble_2p;
    if (name.starts_with("zb-v"))
      return PlanSchedule::zero_bubble_v;
    if (name.starts_with("zb"))
      return PlanSchedule::zero_bubble;
    if (name.starts_with("gpipe"))
      return PlanSchedule::gpipe;
    if (name == "1f1b")
      return PlanSchedule::one_f_one_b;
    if (name.starts_with("1f1b") || name.starts_with("interleaved"))
      return PlanSchedule::interleaved;
  }
  if (!row.has("vp"))
    return std::nullopt;
  return row.text("vp") == "1" ? PlanSchedule::one_f_one_b : PlanSchedule::interleaved;
}

}  // namespace espalier
