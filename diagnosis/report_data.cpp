// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/report_data.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "core/median.hpp"
#include "diagnosis/diagnose.hpp"
#include "diagnosis/thin_out.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "training/config/emulation.hpp"

namespace espalier {
namespace {

std::string name_of(const RecordedRun& run) {
  std::error_code error;
  const Path absolute = std::filesystem::absolute(run.directory, error);
  const Path normal = (error ? run.directory : absolute).lexically_normal();
  return normal.has_filename() ? normal.filename().string() : normal.parent_path().filename().string();
}

// run.json says "running" of a killed run, too: its process says more.
std::string cause_of(const RecordedRun& run, const Finding* grave) {
  switch (run.life) {
    case Life::gone:
      return fmt::format(
          "run.json says running, but process {} on {} is gone: it was killed. `espalier diagnose` says where its "
          "ranks "
          "were.",
          run.record.pid, run.record.host);
    case Life::silent:
      return fmt::format(
          "run.json says running, but no progress has been recorded since {:%Y-%m-%d %H:%M} UTC; whether process {} on "
          "{} "
          "still runs cannot be seen from here. `espalier diagnose` says where its ranks were.",
          fmt::gmtime(static_cast<std::time_t>(run.last_sign_of_life)), run.record.pid, run.record.host);
    case Life::ended:
    case Life::alive: break;
  }
  const std::string spoilt = grave != nullptr ? grave->title : "";
  return run.record.cause + (run.record.cause.empty() || spoilt.empty() ? "" : "\n") + spoilt;
}

// A page is drawn of any run: what cannot be diagnosed is missing from it.
Diagnosis diagnosis_for_page(const RecordedRun& run, std::vector<std::string>& gaps) {
  try {
    return diagnose(run);
  } catch (const Error& error) {
    gaps.push_back(fmt::format("findings: {}", error.report().what));
    return {};
  }
}

// The median of the finite values of those typical steps that have one; null of none.
ReportJson typical(const RecordedRun& run, std::optional<double> (*value)(const StepRecord&)) {
  std::vector<double> values;
  for (std::size_t i = first_typical_step(run.steps.size()); i < run.steps.size(); ++i)
    if (const std::optional<double> each = value(run.steps[i]); each && std::isfinite(*each))
      values.push_back(*each);
  return values.empty() ? ReportJson() : number_data(median_of(std::move(values)));
}

// The last one, and the lowest with its step.
ReportJson validation_head(const RecordedRun& run) {
  const StepRecord* last = nullptr;
  const StepRecord* lowest = nullptr;
  for (const StepRecord& step : run.steps)
    if (step.validation_loss) {
      last = &step;
      if (lowest == nullptr || *step.validation_loss < *lowest->validation_loss)
        lowest = &step;
    }
  if (last == nullptr)
    return {};
  return {{"last", number_data(*last->validation_loss)},
          {"lowest", number_data(*lowest->validation_loss)},
          {"is_lowest", lowest == last},
          {"lowest_step", lowest->times.step}};
}

ReportJson head_of(const RecordedRun& run) {
  using Maybe = std::optional<double>;
  if (run.steps.empty())
    return {};
  const StepRecord& last = run.steps.back();
  return {{"steps", run.steps.size()},
          {"first_step", run.steps.front().times.step},
          {"last_step", last.times.step},
          {"tokens", last.tokens},
          {"skipped_steps", last.skipped_steps},
          {"loss", {{"first", number_data(run.steps.front().loss)}, {"last", number_data(last.loss)}}},
          {"validation_loss", validation_head(run)},
          {"step_seconds",
           {{"measured", typical(run, [](const StepRecord& step) -> Maybe { return step.times.step_seconds; })},
            {"predicted", run.predicted_time ? number_data(run.predicted_time->step_seconds) : ReportJson()}}},
          {"tokens_per_second", typical(run, [](const StepRecord& step) -> Maybe { return step.tokens_per_second; })},
          {"gemm_fraction", typical(run, [](const StepRecord& step) -> Maybe { return step.gemm_fraction; })},
          {"mfu", typical(run, [](const StepRecord& step) { return step.mfu > 0.0 ? step.mfu : Maybe(); })}};
}

void add_fact(ReportJson& facts, std::string name, ReportJson value) {
  facts.push_back({{"name", std::move(name)}, {"value", std::move(value)}});
}

// What the trainer noted about itself and its machine, where it did.
void add_noted_facts(const RunFacts& noted, ReportJson& facts) {
  const auto add = [&](const char* name, bool is_noted, ReportJson value) {
    if (is_noted)
      add_fact(facts, name, std::move(value));
  };
  add("program", !noted.program.empty(), noted.program);
  add("CPU", !noted.cpu.empty(), noted.cpu);
  add("ranks", noted.ranks > 0, noted.ranks);
  const std::string of_host =
      fmt::format("; at most {} on a host, which has {}", noted.host_threads, counted(noted.host_cores, "core"));
  add("threads", noted.threads > 0, fmt::format("{} per rank{}", noted.threads, noted.host_cores > 0 ? of_host : ""));
  add("GEMM library", !noted.gemm_library.empty(), noted.gemm_library);
  add("GEMM rate", noted.gemm_flops > 0, quantity_text(Quantity::flops_per_second, noted.gemm_flops) + ", all ranks");
  add("16-bit units", !noted.program.empty(), noted.fast_16_bits ? "yes" : "no");
  add("resumed at step", noted.first_step > 1, noted.first_step);
  add("train tokens", noted.train_tokens > 0, count_text(static_cast<double>(noted.train_tokens)));
  add("unigram loss", noted.train_tokens > 0, fmt::format("{:.4g} nats per token", noted.unigram_loss));
}

ReportJson facts_of(const RecordedRun& run) {
  const RunConfig& config = run.config;
  ReportJson facts = ReportJson::array();
  add_fact(facts, "model",
           fmt::format("{} parameters: {}, hidden {}, {}, vocabulary {}",
                       count_text(static_cast<double>(num_parameters(config.model.shape))),
                       counted(config.model.shape.num_layers, "layer"), config.model.shape.hidden_size,
                       counted(config.model.shape.num_heads, "head"), config.model.shape.vocab_size));
  add_fact(facts, "layout", config.layout.short_text());
  add_fact(facts, "batch",
           fmt::format("{} of {}, {} of {} a replica", counted(config.layout.global_batch, "sequence"),
                       counted(config.sequence_length, "token"),
                       counted(config.layout.num_microbatches(), "micro-batch"), config.layout.micro_batch));
  add_fact(facts, "precision", to_string(config.layout.precision));
  if (config.emulates_operations() || emulated_links(config.emulate).on())
    add_fact(facts, "emulated", "operations or links are slowed down to given times (--emulate)");
  add_fact(facts, "started",
           run.record.started + (run.record.starts > 1 ? fmt::format(", launch {}", run.record.starts) : ""));
  if (!run.record.ended.empty())
    add_fact(facts, "ended", run.record.ended);
  add_fact(facts, "host", run.record.host);
  if (run.predicted_time && !run.predicted_time->source.empty())
    add_fact(facts, "prediction", run.predicted_time->source);
  add_noted_facts(run.facts, facts);
  return facts;
}

// Behind the first, which is where the curves begin.
ReportJson restarts_of(const RecordedRun& run) {
  ReportJson restarts = ReportJson::array();
  for (const LaunchRecord& launch : run.launches)
    if (launch.first_step > 1)
      restarts.push_back({{"first_step", launch.first_step}, {"changes", launch.changes}});
  return restarts;
}

ReportJson timeline_or_gap(const RecordedRun& run, std::vector<std::string>& gaps) {
  if (run.traces.empty() && run.config.run.trace_steps == 0)
    gaps.emplace_back("no trace/: the timeline of a step is drawn for runs with run.trace_steps=1");
  try {
    return timeline_data(run);
  } catch (const Error& error) {
    gaps.push_back(fmt::format("the timeline: {}", error.report().what));
    return {};
  }
}

}  // namespace

ReportJson number_data(double value) {
  if (std::isnan(value))
    return "not a number";
  if (std::isinf(value))
    return value > 0 ? "infinite" : "-infinite";
  const std::string digits = fmt::format("{:.6g}", value);
  return is_drawable(value) ? ReportJson(std::strtod(digits.c_str(), nullptr)) : ReportJson(digits);
}

std::size_t first_typical_step(std::size_t count) { return count <= 1 ? 0 : std::max<std::size_t>(1, count / 10); }

ReportJson report_data(const RecordedRun& run) {
  std::vector<std::string> gaps = run.gaps;
  const Diagnosis diagnosis = diagnosis_for_page(run, gaps);
  const Finding* const grave = gravest(diagnosis);
  ReportJson data = diagnosis_data(run, diagnosis);
  data.erase("step");
  data["name"] = name_of(run);
  data["verdict"] = grave != nullptr ? grave->verdict : "";
  data["cause"] = cause_of(run, grave);
  data["written"] = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  data["colours"] = colours_data();
  data["head"] = head_of(run);
  data["facts"] = facts_of(run);
  data["restarts"] = restarts_of(run);
  data["series"] = series_data(run);
  data["memory"] = memory_data(run);
  data["phases"] = phases_data(run);
  data["ranks"] = ranks_data(run);
  data["timeline"] = timeline_or_gap(run, gaps);
  if (run.steps.size() == 1)
    gaps.emplace_back("only one step was recorded: a curve is a point");
  data["gaps"] = gaps;
  return data;
}

}  // namespace espalier
