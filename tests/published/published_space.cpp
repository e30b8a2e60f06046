// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/published_space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/scalars.hpp"
#include "io/strings.hpp"
#include "tests/published/published_program.hpp"
#include "tests/published/published_sizes.hpp"

namespace espalier {
namespace {

std::optional<int> degree(const CsvRow& row, const std::string& column) {
  const std::optional<Index> value = row.whole(column);
  return value && *value > 0 ? std::optional<int>(static_cast<int>(std::min<Index>(*value, 1 << 24))) : std::nullopt;
}

// Not said: 16 bits, whose rates are the same. Nothing for a word that is none.
std::optional<Precision> precision_of(const CsvRow& row) {
  const std::string text = lower_case(row.text("precision"));
  if (text.empty())
    return Precision::fp16;
  for (const auto& [word, precision] : {std::pair("fp4", Precision::fp8),  // read_device() makes them faster
                                        {"fp8", Precision::fp8},
                                        {"bf16", Precision::bf16},
                                        {"bfloat16", Precision::bf16},
                                        {"fp16", Precision::fp16},
                                        {"float16", Precision::fp16},
                                        {"tf32", Precision::tf32},
                                        {"fp32", Precision::fp32},
                                        {"float32", Precision::fp32}})
    if (contains(text, word))
      return precision;
  return std::nullopt;
}

// "yes", "block", "off", ... as tables of other authors have it.
std::string usual_recompute(const std::string& written) {
  std::string text = lower_case(written);
  for (const char* all : {"yes", "true", "on", "1", "uniform", "block"})
    if (text == all)
      return "full";
  for (const char* nothing : {"no", "false", "off", "0"})
    if (text == nothing)
      return "none";
  return text;
}

// "3", "3.0", "ZeRO-3", "FSDP2" (its second version), "none". Not said: 1. Nothing for a word that is none.
std::optional<int> zero_stage_of(const std::string& written) {
  const std::string text = lower_case(written);
  if (text.empty())
    return 1;
  for (const auto& [word, stage] : {std::pair("fsdp", 3), {"full", 3}, {"optimizer", 1}, {"ddp", 0}})
    if (contains(text, word))
      return stage;
  if (text == "none" || text == "no" || text == "off" || text == "false")
    return 0;
  const std::size_t digit = text.find_first_of("0123456789");
  return digit != text.npos && text[digit] <= '3' ? std::optional(text[digit] - '0') : std::nullopt;
}

class SpaceReader {
 public:
  explicit SpaceReader(const CsvRow& row) : row_(row) {}

  PublishedSpace read(bool one_block) {
    read_degrees(one_block);
    check_degrees();
    read_batch(one_block);
    read_precision();
    read_recompute();
    read_zero_stage();
    if (space_.tensor != 1)  // else there is nobody to split rows with
      space_.sequence_parallel = yes_or_no(row_, "sequence_parallel").value_or(true);
    read_schedule();
    return {space_, recompute_share_, keeps_products_, why_not_};
  }

 private:
  // The first reason stays.
  void refuse(const std::string& reason) {
    if (why_not_.empty())
      why_not_ = reason;
  }

  void read_degrees(bool one_block) {
    space_.tensor = degree(row_, "tp");
    space_.context = degree(row_, "cp").value_or(1);
    space_.pipeline = degree(row_, "pp");
    space_.data = degree(row_, "dp");
    space_.virtual_stages = degree(row_, "vp");
    space_.micro_batch = degree(row_, "micro_batch");
    devices_ = degree(row_, "gpus");
    for (const char* const column : {"tp", "pp", "cp", "dp", "vp", "micro_batch", "gpus"})
      if (row_.whole(column) == 0)
        refuse(fmt::format("{} is 0: wanted 1 or more, or nothing where it is not known", column));
    const double product = to_double(shard()) * space_.data.value_or(1);
    if (product > most_devices)
      refuse(fmt::format("tp x pp x cp x dp = {:g} are more than {} devices", product, most_devices));
    else if (devices_)
      space_.num_devices = *devices_;
    else if (space_.data)
      space_.num_devices = static_cast<int>(product);
    else if (!one_block)
      refuse("neither gpus nor dp is given");
  }

  // Degrees that are not given count as 1.
  Index shard() const { return Index{space_.tensor.value_or(1)} * space_.pipeline.value_or(1) * *space_.context; }

  void check_degrees() {
    if (!why_not_.empty() || !space_.tensor || !space_.pipeline || !devices_)
      return;
    if (*devices_ % shard() != 0)
      refuse(fmt::format("tp x pp x cp = {} does not divide {} devices", shard(), *devices_));
    else if (space_.data && *space_.data * shard() == Index{*devices_} * *space_.context)
      space_.data = *space_.data / *space_.context;  // dp counted with cp
    else if (space_.data && *space_.data * shard() != *devices_)
      refuse(fmt::format("tp x pp x cp x dp = {} are not {} devices", *space_.data * shard(), *devices_));
  }

  void read_batch(bool one_block) {
    space_.global_batch = row_.whole("global_batch_seqs").value_or(0);
    if (space_.global_batch < 1 && !one_block)
      refuse("global_batch_seqs is missing");
    if (space_.data && space_.micro_batch)
      if (const Index each = *space_.micro_batch * *space_.data; space_.global_batch % each != 0)
        refuse(fmt::format("a global batch of {} is no multiple of dp x micro_batch = {}", space_.global_batch, each));
  }

  void read_precision() {
    const std::optional<Precision> precision = precision_of(row_);
    if (!precision)
      refuse(fmt::format("precision {} is unknown (fp8, bf16, fp16, tf32, fp32)", row_.text("precision")));
    space_.precisions = {precision.value_or(Precision::fp16)};
  }

  void read_recompute() {
    const std::string recompute = usual_recompute(row_.text("recompute"));
    if (recompute.starts_with("full"))
      space_.recompute = Recompute::full;
    else if (recompute.starts_with("none"))
      space_.recompute = Recompute::none;
    else if (recompute.starts_with("selective-layer") || recompute.starts_with("selective-op")) {
      space_.recompute = Recompute::full;  // every second layer, or every second product of each layer
      recompute_share_ = 0.5;
      keeps_products_ = recompute.starts_with("selective-op");
    } else if (recompute.starts_with("selective"))
      space_.recompute = Recompute::selective;
    else if (!recompute.empty())
      refuse(fmt::format("recompute {} is unknown (full, selective, none)", row_.text("recompute")));
    if (const std::optional<double> share = row_.number("recompute_share")) {
      keeps_products_ = space_.recompute == Recompute::selective;
      space_.recompute = Recompute::full;
      recompute_share_ = std::clamp(*share, 0.0, 1.0);
    }
  }

  void read_schedule() {
    if (row_.has("schedule")) {
      space_.schedule = parse_schedule_kind(row_.text("schedule"));
      if (!space_.schedule)
        refuse(fmt::format("schedule {} is unknown", row_.text("schedule")));
    } else if (row_.has("vp"))
      space_.schedule = ScheduleKind::interleaved;
    if (space_.schedule == ScheduleKind::interleaved && row_.text("vp") == "1")
      space_.schedule = ScheduleKind::one_f_one_b;  // programs call it interleaved with one virtual stage
  }

  // Under a pipeline, programs that shard gradients and weights exchange them once a step and hold them whole meanwhile
  // (PyTorch's stages over FSDP, Llama 3's trainer): time and memory of ZeRO-1.
  void read_zero_stage() {
    space_.zero_stage = zero_stage_of(row_.text("zero_stage"));
    if (!space_.zero_stage)
      refuse(fmt::format("ZeRO stage {} is unknown (0 to 3, FSDP, none)", row_.text("zero_stage")));
    if (space_.pipeline.value_or(1) > 1 && space_.zero_stage.value_or(0) > 1)
      space_.zero_stage = 1;
    space_.shard_over = ShardOver::all;  // no row tells otherwise: a copy on each node is what the search would choose
  }

  const CsvRow& row_;
  LayoutSpace space_;
  double recompute_share_ = 1;
  bool keeps_products_ = false;
  std::optional<int> devices_;
  std::string why_not_;
};

}  // namespace

PublishedSpace published_space(const CsvRow& row, bool one_block) { return SpaceReader(row).read(one_block); }

std::vector<Layout> published_layouts(const PlanProblem& problem, const LayoutSpace& space) {
  const Index num_layers = problem.model.num_layers;
  std::vector<Layout> layouts = enumerate_layouts(problem, space);
  if (!space.schedule)  // programs that publish no schedule have 1F1B, of one chunk or several
    std::erase_if(layouts, [](const Layout& layout) { return layout.schedule == ScheduleKind::zero_bubble; });
  if (!space.virtual_stages)
    std::erase_if(layouts, [&](const Layout& layout) {
      return layout.schedule == ScheduleKind::interleaved && !divides_blocks(num_layers, layout.num_parts());
    });
  for (Layout& layout : layouts)
    layout.layers = published_blocks(num_layers, layout);
  return layouts;
}

}  // namespace espalier
