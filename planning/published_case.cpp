// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/published_case.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/error.hpp"
#include "planning/layer_time.hpp"
#include "planning/layout_memory.hpp"
#include "planning/published_program.hpp"
#include "planning/published_time.hpp"

namespace espalier {
namespace {

constexpr double gib = 1 << 30;
constexpr Index runtime_bytes = Index{2} << 30;  // context and libraries of a device

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::optional<Index> whole(const CsvRow& row, const std::string& column) {
  const std::optional<double> value = row.number(column);
  if (!value)
    return std::nullopt;
  if (*value < 0 || *value > 1e15 || *value != std::floor(*value))
    throw Error(ExitCode::data, {.what = fmt::format("{} is no whole number", column),
                                 .where = row.where(),
                                 .got = row.text(column),
                                 .wanted = "a whole number from 0 to 1e15",
                                 .todo = fmt::format("correct the field, or leave it empty, in column {}", column)});
  return static_cast<Index>(*value);
}

std::optional<int> degree(const CsvRow& row, const std::string& column) {
  const std::optional<Index> value = whole(row, column);
  return value && *value > 0 ? std::optional<int>(static_cast<int>(std::min<Index>(*value, 1 << 24))) : std::nullopt;
}

// "arXiv:2104.04473 Table 1" and "... Fig. 11" are one origin, as are two files of one repository at one commit.
std::string origin(std::string source) {
  const std::size_t end = source.find_first_of(" ;,");
  source = source.substr(0, end);
  constexpr std::size_t longest = 66;
  if (const std::size_t file = source.find(':', source.find('@')); contains(source, "@") && file != std::string::npos)
    if (const std::size_t folder = source.find_last_of('/'); folder != std::string::npos && folder > file)
      source = source.substr(0, std::min(source.find('/', source.find('/', file) + 1), source.size()));
  return source.substr(0, longest);
}

// Not said: 16 bits, whose rates are the same. Nothing for a word that is none.
std::optional<Precision> precision_of(const CsvRow& row) {
  std::string text = row.text("precision");
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (text.empty())
    return Precision::fp16;
  for (const auto& [word, precision] : {std::pair("fp8", Precision::fp8),
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

// Feed-forward gated or not, head tied or not: what comes nearest to the published number of parameters; where that
// cannot tell, what the shape suggests.
void decide_variant(ModelShape& model, const CsvRow& row) {
  const std::string words = row.text("id") + " " + row.text("notes");
  const bool says_llama = contains(words, "llama") || contains(words, "Llama") || contains(words, "mistral") ||
                          contains(words, "qwen") || contains(words, "swiglu=True");
  const bool odd_ffn = model.ffn_hidden_size != 4 * model.hidden_size;
  model.gated_ffn = says_llama || (odd_ffn && !contains(words, "swiglu=False"));
  model.rms_norm = model.gated_ffn;
  model.tied_embeddings = !model.gated_ffn && !contains(words, "untied=true");
  model.bias = !model.gated_ffn;
  const std::optional<double> published = row.number("model_params");
  if (!published || says_llama || contains(words, "swiglu="))
    return;
  ModelShape best = model;
  double distance = 0.02;  // what rounding to "7.1B" may hide
  const double own = std::abs(num_parameters(model) / *published - 1);
  if (own < distance)
    return;
  distance = own;
  for (const bool gated : {false, true})
    for (const bool tied : {true, false}) {
      ModelShape other = model;
      other.gated_ffn = gated;
      other.rms_norm = gated;
      other.tied_embeddings = tied;
      const double off = std::abs(num_parameters(other) / *published - 1);
      if (off < distance - 0.02) {
        best = other;
        distance = off;
      }
    }
  model = best;
}

// A vocabulary that is not published: the smallest usual one that explains the number of parameters.
constexpr Index default_vocabulary = 50304;  // GPT-2's, padded to a multiple of 128

Index usual_vocabulary(ModelShape model, const CsvRow& row) {
  const std::optional<double> published = row.number("model_params");
  constexpr double rounding = 0.02;
  if (published)
    for (const Index vocabulary : {Index{32000}, Index{50304}, Index{100352}, Index{128256}, Index{256000}}) {
      model.vocab_size = vocabulary;
      if (std::abs(num_parameters(model) / *published - 1) < rounding)
        return vocabulary;
    }
  return default_vocabulary;
}

ModelShape model_of(const CsvRow& row, const Implementation& implementation, std::string& why_not) {
  ModelShape model;
  model.name = row.text("id");
  const auto need = [&](const std::string& column) {
    const std::optional<Index> value = whole(row, column);
    if (!value && why_not.empty())
      why_not = column + " is missing";
    return value.value_or(0);
  };
  model.num_layers = need("layers");
  model.hidden_size = need("hidden");
  if (!why_not.empty())
    return model;
  model.num_heads = whole(row, "heads").value_or(std::max<Index>(1, model.hidden_size / 128));
  model.num_kv_heads = whole(row, "kv_heads").value_or(model.num_heads);
  model.ffn_hidden_size = whole(row, "ffn_hidden").value_or(4 * model.hidden_size);
  model.vocab_size = whole(row, "vocab").value_or(default_vocabulary);
  decide_variant(model, row);
  if (!row.has("vocab"))
    model.vocab_size = usual_vocabulary(model, row);
  model.max_sequence_length = model.gated_ffn ? 0 : whole(row, "seq_len").value_or(0);
  model.dropout = !implementation.fused_attention;
  if (const std::vector<std::string> broken = problems(model); !broken.empty())
    why_not = broken.front();
  return model;
}

// "yes", "block", "off", ... as tables of other authors have it.
std::string usual_recompute(const std::string& text) {
  for (const char* all : {"yes", "true", "True", "on", "1", "uniform", "block", "Full", "FULL"})
    if (text == all)
      return "full";
  for (const char* nothing : {"no", "false", "False", "off", "0", "None", "NONE"})
    if (text == nothing)
      return "none";
  return text;
}

void read_space(const CsvRow& row, PublishedCase& read) {
  LayoutSpace& space = read.space;
  const std::string recompute = usual_recompute(row.text("recompute"));
  const std::string notes = row.text("notes");
  space.tensor = degree(row, "tp");
  space.context = degree(row, "cp");
  space.pipeline = degree(row, "pp");
  space.data = degree(row, "dp");
  space.virtual_stages = degree(row, "vp");
  space.micro_batch = whole(row, "micro_batch");
  const std::optional<int> devices = degree(row, "gpus");
  if (devices)
    space.num_devices = *devices;
  else if (space.data)
    space.num_devices = space.tensor.value_or(1) * space.context.value_or(1) * space.pipeline.value_or(1) * *space.data;
  else if (!read.one_block)
    read.why_not = "neither gpus nor dp is given";
  if (!space.context)
    space.context = 1;
  if (space.tensor && space.pipeline && devices) {
    const int shard = *space.tensor * *space.pipeline * *space.context;
    if (*devices % shard != 0)
      read.why_not = fmt::format("tp x pp x cp = {} does not divide {} devices", shard, *devices);
    else if (space.data && *space.data == *devices / (*space.tensor * *space.pipeline))
      space.data = *devices / shard;  // dp counted with cp
    else if (space.data && *space.data * shard != *devices)
      read.why_not = fmt::format("tp x pp x cp x dp = {} are not {} devices", *space.data * shard, *devices);
  }
  space.global_batch = whole(row, "global_batch_seqs").value_or(0);
  if (space.global_batch < 1 && !read.one_block && read.why_not.empty())
    read.why_not = "global_batch_seqs is missing";
  if (space.data && space.micro_batch && *space.micro_batch > 0 && read.why_not.empty())
    if (const Index each = *space.micro_batch * *space.data; space.global_batch % each != 0)
      read.why_not =
          fmt::format("a global batch of {} is no multiple of dp x micro_batch = {}", space.global_batch, each);
  const std::optional<Precision> precision = precision_of(row);
  if (!precision)
    read.why_not = fmt::format("precision {} is unknown (fp8, bf16, fp16, tf32, fp32)", row.text("precision"));
  space.precisions = {precision.value_or(Precision::fp16)};
  if (recompute.starts_with("full"))
    space.recompute = Recompute::full;
  else if (recompute.starts_with("none"))
    space.recompute = Recompute::none;
  else if (recompute.starts_with("selective-layer") || recompute.starts_with("selective-op")) {
    space.recompute = Recompute::full;  // every second layer, or every second product of each layer
    space.recompute_share = 0.5;
  } else if (recompute.starts_with("selective"))
    space.recompute = Recompute::selective;
  else if (!recompute.empty())
    read.why_not = fmt::format("recompute {} is unknown (full, selective, none)", recompute);
  const std::string zero = row.text("zero_stage");  // "3", "3.0", "ZeRO-3"
  if (const std::size_t digit = zero.find_first_of("0123456789"); digit == std::string::npos)
    space.zero_stage = contains(zero, "FSDP") ? 3 : published_zero_stage(row);
  else if (zero[digit] <= '3')
    space.zero_stage = zero[digit] - '0';
  else
    read.why_not = fmt::format("ZeRO stage {} is unknown", zero);
  // Under a pipeline, programs that shard gradients and weights exchange them once a step and hold them whole meanwhile
  // (PyTorch's stages over FSDP, Llama 3's trainer): time and memory of ZeRO-1.
  if (space.pipeline.value_or(1) > 1 && space.zero_stage.value_or(0) > 1)
    space.zero_stage = 1;
  space.sequence_parallel = published_sequence_parallel(row);
  space.schedule = published_schedule(row);
  space.tries_zero_bubble = false;
  space.tries_uneven_chunks = false;
}

PlanLayout first_layout(const PublishedCase& read) {
  PlanLayout layout;
  layout.tensor = read.space.tensor.value_or(1);
  layout.data = read.space.data.value_or(1);
  layout.micro_batch = layout.global_batch = read.space.micro_batch.value_or(1);
  layout.recompute = read.space.recompute.value_or(Recompute::none);
  layout.recompute_share = read.space.recompute_share;
  layout.sequence_parallel = read.space.sequence_parallel.value_or(false) && layout.tensor > 1;
  layout.precision = read.space.precisions.front();
  layout.zero_stage = read.space.zero_stage.value_or(0);
  return layout;
}

void read_measured(const CsvRow& row, PublishedCase& read) {
  const std::string notes = row.text("notes");
  const PublishedTime time = published_time(row, read.problem, read.space);
  read.measured_seconds = time.seconds;
  // Tests of a program run tiny models with deterministic kernels and say so: their memory counts, their time does not.
  const bool comparable = !contains(notes, "times not representative") && !contains(notes, "DO NOT") &&
                          !contains(row.text("source"), "functional_tests");
  const bool has_time = time.seconds > 0 || row.has("iter_time_s") || row.has("tokens_per_s_per_gpu");
  read.timed = has_time && comparable;
  if (read.why_not.empty() && (has_time || !row.has("mem_gb_per_gpu")))
    read.why_not = time.why_not;
  if (const std::optional<double> memory = row.number("mem_gb_per_gpu")) {
    read.analytic = contains(notes, "kind=analytic");
    read.states_only = contains(notes, "model states only");
    read.last_stage = contains(notes, "LAST rank");
    read.measured_bytes = *memory * (contains(notes, "1e9 bytes") ? 1e9 : gib);
  }
}

PublishedCase read_row(const CsvRow& row, const std::vector<Cluster>& calibrated) {
  PublishedCase read;
  read.id = row.text("id").empty() ? fmt::format("line {}", row.line()) : row.text("id");
  read.source = origin(row.text("source"));
  read.parameters = row.number("model_params").value_or(0);
  read.problem.implementation = published_implementation(row);
  read.one_block = row.text("layers") == "1" && !row.has("vocab") && !row.has("global_batch_seqs");
  read.problem.sequence_length = whole(row, "seq_len").value_or(0);
  if (read.problem.sequence_length < 1)
    read.why_not = "seq_len is missing";
  std::string why_no_model;
  read.problem.model = model_of(row, read.problem.implementation, why_no_model);
  if (!why_no_model.empty())
    read.why_not = why_no_model;
  const std::string words = row.text("id") + row.text("notes");
  read.dense = !contains(words, "moe") && !contains(words, "MoE") && !contains(words, "mixture of experts");
  for (const char* column : {"experts", "num_experts"})
    read.dense = read.dense && row.number(column).value_or(1) <= 1;
  if (!read.dense)
    read.why_not = "a mixture of experts is not priced";
  const std::optional<std::string> device = accelerator_named(row.text("gpu"));
  read_space(row, read);
  if (!device) {
    read.why_not = row.has("gpu") ? fmt::format("no efficiency curve for {}", row.text("gpu")) : "gpu is missing";
  } else {
    Cluster cluster = cluster_preset(*device);
    for (const Cluster& each : calibrated)
      if (each.device.name == *device)
        cluster = each;
    cluster.reserved_bytes = runtime_bytes;  // it ran, so it fitted, with whatever the allocator wasted
    read.problem.cluster = with_devices(cluster, std::max(read.space.num_devices, 1));
    if (!read.problem.cluster.device.has(read.space.precisions.front()))
      read.why_not = fmt::format("{} has no {}", *device, to_string(read.space.precisions.front()));
  }
  read_measured(row, read);
  return read;
}

}  // namespace

PublishedCase read_case(const CsvRow& row, const std::vector<Cluster>& calibrated) {
  try {
    return read_row(row, calibrated);
  } catch (const Error& error) {  // one field that cannot be read costs one row, not the table
    PublishedCase unread;
    unread.id = row.text("id").empty() ? fmt::format("line {}", row.line()) : row.text("id");
    unread.source = origin(row.text("source"));
    unread.timed = row.has("iter_time_s") || row.has("tokens_per_s_per_gpu");
    unread.why_not = fmt::format("{}: {}", error.report().what, error.report().got);
    return unread;
  }
}

std::vector<PublishedCase> read_cases(std::string_view text, const std::string& name,
                                      const std::vector<Cluster>& calibrated) {
  const std::vector<std::string> columns = csv_columns(text, name);
  const auto has = [&](const char* column) { return std::ranges::find(columns, column) != columns.end(); };
  std::vector<std::string> missing;
  for (const std::vector<const char*>& any :
       {std::vector<const char*>{"layers"},
        {"hidden"},
        {"seq_len"},
        {"gpu"},
        {"gpus", "dp"},
        {"iter_time_s", "tokens_per_s_per_gpu", "achieved_tflops_per_gpu", "mfu_pct", "mem_gb_per_gpu"}})
    if (std::ranges::none_of(any, has))
      missing.push_back(fmt::format("{}", fmt::join(any, " or ")));
  const auto refuse = [&](const std::string& what, const std::string& got, const std::string& wanted) {
    throw Error(ExitCode::data,
                {.what = what,
                 .where = name,
                 .got = got,
                 .wanted = wanted,
                 .todo = "docs/planner.md names the columns; tests/planning/published_rows.csv is such a "
                         "table"});
  };
  if (!missing.empty())
    refuse(fmt::format("the table lacks columns: {}", fmt::join(missing, ", ")),
           columns.empty() ? "an empty file" : fmt::format("{:.200}", fmt::join(columns, " | ")),
           "a first line that names the columns, separated by commas");
  std::vector<PublishedCase> cases;
  for (const CsvRow& row : parse_csv(text, name))
    cases.push_back(read_case(row, calibrated));
  if (cases.empty())
    refuse("the table has no rows", "its first line alone", "a line for each configuration");
  return cases;
}

PricedCase price_case(PublishedCase published) {
  PricedCase priced{.published = std::move(published)};
  PublishedCase& read = priced.published;
  if (read.states_only && read.parameters > 0) {
    const StateBytes bytes = sharded_state_bytes(state_bytes(Precision::fp16, {.gradient_bytes = 2}),
                                                 read.space.zero_stage.value_or(0), read.space.data.value_or(1));
    priced.predicted_bytes = read.parameters * bytes.total();
    return priced;
  }
  if (!read.why_not.empty())
    return priced;
  if (read.one_block) {
    const BlockTime time = block_time(read.problem.model, read.problem.cluster, first_layout(read),
                                      read.problem.implementation, read.problem.sequence_length);
    priced.predicted_seconds = time.forward.seconds() + time.recompute.seconds() + time.backward_input.seconds() +
                               time.backward_weight.seconds();
    return priced;
  }
  std::optional<PlanLayout> layout = fastest_layout(read.problem, read.space);
  if (!layout) {  // published, so it fitted: what is not known of it does not matter that much
    PlanProblem roomy = read.problem;
    roomy.cluster.device.memory_bytes *= 1000;
    layout = fastest_layout(roomy, read.space);
  }
  if (!layout) {
    const std::vector<PlanLayout> all = enumerate_layouts(read.problem, read.space);
    read.why_not =
        all.empty() ? "its degrees do not multiply to its devices" : why_impossible(read.problem, all.front());
    return priced;
  }
  priced.price = price_layout(read.problem, *layout);
  priced.predicted_seconds = priced.price->step_seconds;
  priced.predicted_bytes =
      static_cast<double>(read.last_stage ? priced.price->memory.back().total() : priced.price->memory_bytes);
  return priced;
}

}  // namespace espalier
