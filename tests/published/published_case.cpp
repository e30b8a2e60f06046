// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/published_case.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "core/scalars.hpp"
#include "io/nearest_word.hpp"
#include "io/strings.hpp"
#include "io/units.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/layer_time.hpp"
#include "planning/layout_limits.hpp"
#include "tests/published/published_model.hpp"
#include "tests/published/published_program.hpp"
#include "tests/published/published_sizes.hpp"
#include "tests/published/published_space.hpp"
#include "tests/published/published_time.hpp"

namespace espalier {
namespace {

// Of a published time: long sequences count masked products that no program makes, tiny models wait for the host.
constexpr double most_of_peak = 1.3;
constexpr double least_of_peak = 2e-3;
constexpr double peak_of_a_die = 250;            // TFLOP/s: a row of an MI250 with more counts both dies as one device
constexpr double other_model = 1.5;              // times: parameters so far from those of a shape are not its
constexpr Index runtime_bytes = Index{2} << 30;  // context and libraries of a device

// The first reason stays.
void refuse(PublishedCase& read, const std::string& reason) {
  if (read.why_not.empty())
    read.why_not = reason;
}

[[noreturn]] void throw_bad_table(const std::string& name, const std::string& what, const std::string& got,
                                  const std::string& wanted) {
  throw Error(
      ExitCode::data,
      {.what = what,
       .where = name,
       .got = got,
       .wanted = wanted,
       .todo = "tests/published/README.md names the columns; tests/planning/published_rows.csv is such a table"});
}

// What a table may have.
constexpr std::array known_columns{"id",
                                   "source",
                                   "model_params",
                                   "layers",
                                   "hidden",
                                   "heads",
                                   "kv_heads",
                                   "head_dim",
                                   "window",
                                   "full_layers",
                                   "ffn_hidden",
                                   "vocab",
                                   "seq_len",
                                   "gpu",
                                   "gpus",
                                   "peak_tflops",
                                   "tp",
                                   "pp",
                                   "dp",
                                   "cp",
                                   "vp",
                                   "global_batch_seqs",
                                   "micro_batch",
                                   "precision",
                                   "recompute",
                                   "notes",
                                   "zero_stage",
                                   "tokens_per_s_per_gpu",
                                   "iter_time_s",
                                   "achieved_tflops_per_gpu",
                                   "mfu_pct",
                                   "mem_gb_per_gpu",
                                   "experts",
                                   "num_experts",
                                   "top_k",
                                   "expert_ffn",
                                   "expert_parallel",
                                   "program",
                                   "fp8_scaling",
                                   "gradient_bytes",
                                   "extra_state_bytes",
                                   "sequence_parallel",
                                   "schedule",
                                   "activation",
                                   "tied_embeddings",
                                   "moe",
                                   "flop_count",
                                   "comparable",
                                   "memory_of",
                                   "memory_unit",
                                   "analytic",
                                   "framework",
                                   "network_gbps",
                                   "network_gb_per_s",
                                   "recompute_share",
                                   "memory_by",
                                   "date",
                                   "published",
                                   "year"};

// "arXiv:2104.04473 Table 1" and "... Fig. 11" are one document, as are two files of one folder of a repository at one
// commit. Where the first word names no document the whole source does.
std::string origin_of(const std::string& source) {
  std::string word = source.substr(0, source.find_first_of(" ;,"));
  if (!contains(word, ":"))
    return source;
  const std::size_t file = word.find(':', word.find('@'));
  if (!contains(word, "@") || file == std::string::npos || word.find('/', file) == std::string::npos)
    return word;
  return word.substr(0, word.find('/', word.find('/', file) + 1));
}

Layout first_layout(const PublishedCase& read) {
  Layout layout;
  layout.tensor = read.space.tensor.value_or(1);
  layout.data = read.space.data.value_or(1);
  layout.micro_batch = layout.global_batch = read.space.micro_batch.value_or(1);
  layout.recompute = read.space.recompute.value_or(Recompute::none);
  layout.sequence_parallel = read.space.sequence_parallel.value_or(false) && layout.tensor > 1;
  layout.precision = read.space.precisions.front();
  layout.zero_stage = read.space.zero_stage.value_or(0);
  return layout;
}

void read_measured(const CsvRow& row, PublishedCase& read) {
  const PublishedTime time = published_time(row, read.problem, read.space);
  read.measured_seconds = time.seconds;
  const std::optional<double> memory = row.number("mem_gb_per_gpu");
  read.timed = time.is_told && yes_or_no(row, "comparable").value_or(true);
  if (time.is_told || !memory)
    refuse(read, time.why_not);
  if (memory && *memory <= 0)
    refuse(read, fmt::format("mem_gb_per_gpu is {}: wanted more than 0", row.text("mem_gb_per_gpu")));
  if (!read.timed && !memory)
    refuse(read, time.is_told ? "its time is not to be compared (column comparable)"
                              : "nothing is measured: no time, no rate and no memory is given");
  if (memory && *memory > 0) {
    require_word(row, "memory_of", {"states", "last_stage"});
    require_word(row, "memory_unit", {"GB", "GiB"});
    read.analytic = yes_or_no(row, "analytic").value_or(false);
    read.states_only = row.text("memory_of") == "states";
    read.last_stage = row.text("memory_of") == "last_stage";
    read.measured_bytes = *memory * (row.text("memory_unit") == "GB" ? 1e9 : static_cast<double>(gib));
    const Index on_device = read.problem.cluster.device.memory_bytes;
    if (!read.analytic && on_device > 0 && read.measured_bytes > 1.1 * static_cast<double>(on_device)) {
      read.measured_bytes = 0;
      refuse(read, fmt::format("mem_gb_per_gpu is {}, and {} has {} GiB: is it in GiB?", row.text("mem_gb_per_gpu"),
                               read.problem.cluster.device.name, on_device / gib));
    }
  }
}

// What is missing to price a mixture of experts; the other columns have defaults.
std::string missing_of_experts(const CsvRow& row, const Experts& experts) {
  if (experts.count == 0)
    return yes_or_no(row, "moe").value_or(false) ? "a mixture of experts: experts is missing" : "";
  return row.has("top_k") ? "" : "a mixture of experts: top_k is missing";
}

// Of a device of the presets: 1.6 Tb/s for 8 of Ampere, 400 Gb/s for 8 of Volta, as much as eight times that since.
double line_rate_gbps(const Cluster& cluster) {
  const std::string& device = cluster.device.name;
  return device.starts_with("v100") ? 50 : device.starts_with("a") ? 200 : 400;
}

// Products of 4 bits take the blocks of Blackwell. Of what the data sheets promise against fp8, 2 times, and 3 times on
// Blackwell Ultra, steps gain a part; the rest is lost to scaling, casts and rotations [Megatron-Bridge, 26.02
// to 26.06].
void take_four_bits(const CsvRow& row, PublishedCase& read) {
  if (!contains(lower_case(row.text("precision")), "fp4"))
    return;
  Accelerator& device = read.problem.cluster.device;
  const bool ultra = contains(device.name, "b300");
  if (!ultra && !contains(device.name, "b200"))
    refuse(read, fmt::format("{} has no nvfp4", device.name));
  device.rate(Precision::fp8).peak_flops *= ultra ? 2 : 1.6;
}

void read_device(const CsvRow& row, const std::vector<Cluster>& calibrated, PublishedCase& read) {
  std::optional<std::string> device = accelerator_named(row.text("gpu"));
  if (!device) {
    refuse(read, row.has("gpu") ? fmt::format("no efficiency curve for {}", row.text("gpu")) : "gpu is missing");
    return;
  }
  if (device == "mi250x" && row.number("peak_tflops").value_or(0) > peak_of_a_die)
    device = "mi250x-module";
  Cluster cluster = cluster_preset(*device);
  for (const Cluster& each : calibrated)
    if (each.device.name == *device)
      cluster = each;
  if (const std::optional<double> gbps = row.number("network_gbps")) {  // the preset's share of its own line rate
    const double times = *gbps / line_rate_gbps(cluster);
    cluster.network.bandwidth *= times;
    cluster.network.alone *= times;
  }
  if (const std::optional<double> measured = row.number("network_gb_per_s"))
    cluster.network.bandwidth = cluster.network.alone = *measured * 1e9;
  cluster.reserved_bytes = runtime_bytes;  // it ran, so it fitted, with whatever the allocator wasted
  read.problem.cluster = with_devices(cluster, std::max(read.space.num_devices, 1));
  take_four_bits(row, read);
  if (!cluster.device.has(read.space.precisions.front()))
    refuse(read, fmt::format("{} has no {}", *device, to_string(read.space.precisions.front())));
}

// The parameters that are told against those of the shape. More of them are experts, which no shape tells.
void check_parameters(PublishedCase& read) {
  if (!read.why_not.empty() || read.parameters <= 0)
    return;
  const Experts& experts = read.problem.implementation.experts;
  const ModelConfig& model = read.problem.model;
  const double others = experts.count == 0 ? 0 : 1 - static_cast<double>(experts.of_token) / experts.count;
  const double of_shape =
      to_double(num_parameters(model)) +
      (experts.count == 0
           ? 0
           : others * to_double(model.num_layers) *
                 layer_elements(model, {}, {.experts = {.count = experts.count, .of_token = experts.of_token}})
                     .experts);
  const double times = read.parameters / of_shape;
  if (times > 1 / other_model && times < other_model)
    return;
  refuse(read, fmt::format("model_params is {:.3g} and its shape has {:.3g}{}", read.parameters, of_shape,
                           times < other_model ? "" : ": a mixture of experts? (column experts)"));
}

// Who it is, whatever else it says.
PublishedCase named(const CsvRow& row) {
  PublishedCase read;
  read.id = row.text("id").empty() ? fmt::format("line {}", row.line()) : row.text("id");
  read.source = row.text("source").empty() ? "no source given" : row.text("source");
  read.origin = origin_of(read.source);
  read.framework = row.text("framework");
  return read;
}

PublishedCase read_row(const CsvRow& row, const std::vector<Cluster>& calibrated) {
  PublishedCase read = named(row);
  if (row.num_excess() > 0)
    refuse(read, fmt::format("it has {} more than the table has columns: are commas in a field not quoted?",
                             counted(static_cast<Index>(row.num_excess()), "field")));
  read.parameters = row.number("model_params").value_or(0);
  const PublishedProgram program = published_program(row);
  read.problem.implementation = program.implementation;
  read.memory = program.memory;
  refuse(read, missing_of_experts(row, read.problem.implementation.experts));
  read.problem.sequence_length = row.whole("seq_len").value_or(0);
  if (read.problem.sequence_length < 1)
    refuse(read, "seq_len is missing");
  std::string why_no_model;
  read.problem.model = published_model(row, read.problem.implementation, why_no_model);
  set_arrays(program.kernels, read.problem.model, read.problem.implementation);
  read.problem.model_name = row.text("id");
  refuse(read, why_no_model);
  check_parameters(read);
  read.one_block = row.text("layers") == "1" && !row.has("vocab") && !row.has("global_batch_seqs");
  const PublishedSpace published = published_space(row, read.one_block);
  read.space = published.space;
  read.problem.implementation.recompute_share = published.recompute_share;
  read.problem.implementation.keeps_products = published.keeps_products;
  round_sizes_up(read.problem.model, read.space.tensor.value_or(1));
  read.balances_stages = program.balances_stages;
  read_device(row, calibrated, read);  // before what the degrees contradict: no correction of them would price it
  refuse(read, published.why_not);
  read_measured(row, read);
  return read;
}

// @throws Error (data) for columns without which no row can be priced.
void require_columns(const std::vector<std::string>& columns, const std::string& name) {
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
  if (!missing.empty())
    throw_bad_table(name, fmt::format("the table lacks columns: {}", fmt::join(missing, ", ")),
                    columns.empty() ? "an empty file" : fmt::format("{:.200}", fmt::join(columns, " | ")),
                    "a first line that names the columns, separated by commas");
}

// "batch (is it global_batch_seqs?)"; none of a column without a name.
std::vector<std::string> unknown_columns(const std::vector<std::string>& columns) {
  const std::vector<std::string> known(known_columns.begin(), known_columns.end());
  std::vector<std::string> unknown;
  for (const std::string& column : columns) {
    if (column.empty() || std::ranges::find(known, column) != known.end())
      continue;
    const std::string nearest = nearest_word(column, known);
    unknown.push_back(nearest.empty() || std::ranges::find(columns, nearest) != columns.end()
                          ? column
                          : fmt::format("{} (is it {}?)", column, nearest));
  }
  return unknown;
}

}  // namespace

PublishedCase read_case(const CsvRow& row, const std::vector<Cluster>& calibrated) {
  try {
    return read_row(row, calibrated);
  } catch (const Error& error) {  // one field that cannot be read costs one row, not the table
    PublishedCase unread = named(row);
    unread.timed = row.has("iter_time_s") || row.has("tokens_per_s_per_gpu") || row.has("mfu_pct");
    const ErrorReport& report = error.report();
    unread.why_not = fmt::format("{}: {}", report.what, report.got.empty() ? report.wanted : report.got);
    return unread;
  }
}

PublishedTable read_cases(std::string_view text, const std::string& name, const std::vector<Cluster>& calibrated) {
  const CsvTable table = parse_csv(text, name);
  require_columns(table.columns, name);
  if (table.rows.empty())
    throw_bad_table(name, "the table has no rows", "its first line alone", "a line for each configuration");
  PublishedTable read{.cases = {},
                      .unknown_columns = unknown_columns(table.columns),
                      .tells_programs = std::ranges::find(table.columns, "program") != table.columns.end()};
  for (const CsvRow& row : table.rows)
    read.cases.push_back(read_case(row, calibrated));
  return read;
}

PricedCase price_case(PublishedCase published) {
  PricedCase priced{.published = std::move(published)};
  PublishedCase& read = priced.published;
  read.problem.memory_of = [program = read.memory](const PlanProblem& problem, const Layout& layout) {
    return published_memory(problem, program, layout);
  };
  if (read.states_only && read.parameters > 0) {
    const PublishedStates bytes = sharded_states(published_states(Precision::fp16, 2),
                                                 read.space.zero_stage.value_or(0), read.space.data.value_or(1));
    priced.predicted_bytes = read.parameters * bytes.total();
    return priced;
  }
  if (!read.why_not.empty())
    return priced;
  if (read.one_block) {
    priced.layout = first_layout(read);
    priced.predicted_seconds = block_time(read.problem.model, read.problem.cluster, priced.layout,
                                          read.problem.implementation, read.problem.sequence_length)
                                   .seconds();
    return priced;
  }
  const std::vector<Layout> layouts = published_layouts(read.problem, read.space);
  std::optional<Layout> layout = fastest_layout(read.problem, layouts);
  if (!layout) {  // published, so it fitted: what is not known of it does not matter that much
    PlanProblem roomy = read.problem;
    roomy.cluster.device.memory_bytes *= 1000;
    layout = fastest_layout(roomy, layouts);
  }
  if (!layout) {
    read.why_not =
        layouts.empty() ? "its degrees do not multiply to its devices" : why_impossible(read.problem, layouts.front());
    return priced;
  }
  if (read.balances_stages && layout->pipeline > 1)
    layout->layers = balanced_blocks(read.problem.model, layout->num_parts());
  priced.layout = *layout;
  priced.price = price_layout(read.problem, *layout);
  priced.too_large = why_too_large(read.problem, *priced.price);
  const double of_peak = priced.price->flops_shares.shown() * priced.price->step_seconds / read.measured_seconds;
  if (read.timed && (of_peak > most_of_peak || of_peak < least_of_peak))
    read.why_not = fmt::format("in {:.4g} s it would reach {:.3g} % of the peak of {}: is the time in seconds?",
                               read.measured_seconds, 100 * of_peak, read.problem.cluster.device.name);
  else
    priced.predicted_seconds = priced.price->step_seconds;
  priced.predicted_bytes =
      static_cast<double>(read.last_stage ? priced.price->memory.back().total() : priced.price->memory_bytes);
  return priced;
}

}  // namespace espalier
