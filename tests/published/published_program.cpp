// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/published_program.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

#include "planning/strings.hpp"
#include "tests/published/described_words.hpp"

namespace espalier {
namespace {

constexpr int fused_since = 2206;     // FlashAttention: arXiv 2205.14135
constexpr int sequence_since = 2206;  // sequence parallelism: arXiv 2205.05198
constexpr int overlap_since = 2309;   // Megatron-LM's --overlap-grad-reduce

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

DescribedWords words_of(const CsvRow& row) {
  return DescribedWords(row.text("id") + " | " + row.text("source") + " | " + row.text("notes"));
}

bool is_nemo(const DescribedWords& row) {
  return row.says({"nemo ", "nemo2", "nemofw", "megatron bridge", "megatronbridge"});
}

bool is_megatron(const DescribedWords& row) { return row.says({"megatron"}) && !is_nemo(row); }

// NVIDIA's programs and llm.c take cuDNN's attention; others one FlashAttention for all devices, written for Ampere.
bool has_tuned_attention(const DescribedWords& row) {
  if (row.denies({"cudnn", "flash attention 3", "flashattention 3"}))
    return false;
  return is_nemo(row) || (is_megatron(row) && !row.says({"deepspeed"})) ||
         row.says({"cudnn", "transformer engine", "transformerengine", "flash attention 3", "flashattention 3",
                   "flash attn 3", "fa3 ", "llm c "});
}

// JAX and Gaudi always compile; PyTorch's own fp8 products are meant to be compiled with the casts around them.
bool is_compiled(const CsvRow& row, const DescribedWords& said) {
  if (said.denies({"compil", "torch compil"}))
    return false;
  const bool own_fp8 = said.says({"torchtitan"}) && contains(lower_case(row.text("precision")), "fp8");
  return own_fp8 || said.says({"compil", "jax ", "maxtext", "llm c ", "dao ailab"}) ||
         contains(lower_case(row.text("gpu")), "gaudi");
}

// Megatron-LM's tests name theirs; without Transformer Engine ("te") they take the framework's own products and
// softmax.
bool has_unfused_attention(const DescribedWords& row) {
  return row.denies({"flash"}) || row.quotes("attention_backend=unfused") || row.quotes("gpt3_mcore_tp") ||
         row.quotes("uninstall_te");
}

bool is_old(const CsvRow& row) {
  const DescribedWords said = words_of(row);
  if (said.says({"flash"}))
    return false;
  // Newer, and never ran it: zero bubble keeps s b (34 h + 5 a s) a layer, BLOOM took Megatron-DeepSpeed's fused
  // softmax.
  if (said.quotes("2401.10241") || said.quotes("2211.05100"))
    return true;
  if (const std::optional<int> month = publication_month(row))
    return *month < fused_since;
  return contains(row.text("precision"), "fp16") && !contains(row.text("precision"), "bf16");
}

bool fully_sharded(const CsvRow& row) {
  return contains(row.text("zero_stage"), "3") || contains(lower_case(row.text("zero_stage")), "fsdp");
}

// Megatron-LM took PyTorch's overlapping reducer until pipelines came, and had none of its own before 2023-09; nor had
// the one that MegaScale compares itself with. Programs that shard weights always overlap.
bool overlaps_reduction(const CsvRow& row, const DescribedWords& said) {
  if (fully_sharded(row) || said.says({"overlap grad reduce", "readme sep 2020"}))
    return true;
  if (is_old(row))
    return false;
  const bool without = said.quotes("2402.15627") || publication_month(row).value_or(overlap_since) < overlap_since;
  return !(is_megatron(said) && without);
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
  const DescribedWords said = words_of(row);
  const bool old = is_old(row);
  const bool nemo = is_nemo(said);
  const bool megatron = is_megatron(said);
  Implementation made;
  made.fused_attention = !has_unfused_attention(said) && (said.quotes("attention_backend=flash") || !old);
  made.tuned_attention = has_tuned_attention(said);
  made.recomputes_attention = true;
  made.overlaps_reduction = overlaps_reduction(row, said);
  made.overlaps_gather = made.overlaps_reduction;
  // NeMo's recipes for speed cut tensor collectives up to hide them, and reduce gradients in 16 bits.
  made.overlaps_tensor = (nemo || said.says({"tp comm overlap", "asynctp", "async tp"})) &&
                         !said.denies({"tp comm overlap", "asynctp", "async tp"});
  made.overlaps_tensor_backward = !old || said.quotes("2205.05198");
  made.fused_accumulation = !old || said.quotes("2205.05198") || said.quotes("2401.10241");
  made.splits_messages = !said.quotes("WITHOUT scatter/gather") && !said.quotes("no-scatter-gather");
  made.recomputes_last_product = old || megatron || nemo;
  made.one_ring = old && fully_sharded(row);
  made.arenas_of_train = false;
  made.compiled = is_compiled(row, said);
  made.fused_elementwise = made.compiled || old || nemo || megatron || said.says({"nanotron"});
  made.fused_optimizer = made.fused_elementwise || said.says({"torchtitan", "deepspeed"});
  made.fused_loss = made.compiled;
  made.gradient_bytes = contains(row.text("precision"), "fp16") && old ? 2 : 4;
  made.extra_state_bytes = made.gradient_bytes == 2 ? 4 : 0;
  if (said.quotes("mp_mode=PURE") || said.says({"llm c "}) || nemo)
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

std::optional<ScheduleKind> published_schedule(const CsvRow& row) {
  const std::string notes = row.text("notes");
  const std::size_t at = notes.find("schedule=");
  if (at != std::string::npos) {
    const std::string name = notes.substr(at + 9, notes.find_first_of("; ,", at) - at - 9);
    if (name.starts_with("zb-2p"))
      return ScheduleKind::zero_bubble_2p;
    if (name.starts_with("zb-v"))
      return ScheduleKind::zero_bubble_v;
    if (name.starts_with("zb"))
      return ScheduleKind::zero_bubble;
    if (name.starts_with("gpipe"))
      return ScheduleKind::gpipe;
    if (name == "1f1b")
      return ScheduleKind::one_f_one_b;
    if (name.starts_with("1f1b") || name.starts_with("interleaved"))
      return ScheduleKind::interleaved;
  }
  if (!row.has("vp"))
    return std::nullopt;
  return row.text("vp") == "1" ? ScheduleKind::one_f_one_b : ScheduleKind::interleaved;
}

}  // namespace espalier
