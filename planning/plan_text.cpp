// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "core/memory_text.hpp"
#include "core/scalars.hpp"
#include "io/units.hpp"
#include "planning/interval.hpp"
#include "planning/layout_limits.hpp"
#include "planning/run_cost.hpp"
#include "planning/runnable.hpp"
#include "planning/why_slower.hpp"

namespace espalier {
namespace {

// A list that begins at a column, in lines of at most 180 where its parts allow it.
std::string wrapped(const std::string& list, std::size_t column) {
  constexpr std::size_t widest = 180;
  const std::size_t comma = column + list.size() <= widest ? std::string::npos : list.rfind(", ", widest - column - 1);
  return comma == std::string::npos
             ? list
             : list.substr(0, comma + 1) + "\n" + std::string(column, ' ') + wrapped(list.substr(comma + 2), column);
}

// What every table says of a layout, behind what stands before it.
std::string row_text(std::string text, const PlanProblem& problem, const LayoutPrice& price) {
  text += fmt::format(" {:>9.4g} s {:>16} {:>11} {:>6.1f} % {:>6.1f} % {:>6.1f} % {:>8.1f} GiB  ", price.step_seconds,
                      interval_text(price.step_interval), rounded_text(price.tokens_per_second, 4),
                      100 * price.flops_shares.shown(), 100 * price[Phase::bubble] / price.step_seconds,
                      100 * price.idle_share, in_gib(price.memory_bytes));
  const char* const mark = why_not_runnable(problem, price.layout).empty() ? "" : " *";
  return text + wrapped(price.layout.text() + mark, text.size()) + "\n";
}

std::string head_text(const std::string& before, std::span<const LayoutPrice> prices) {
  const auto has_mfu = [](const LayoutPrice& price) { return price.flops_shares.mfu.has_value(); };
  const char* const share = std::ranges::all_of(prices, has_mfu)    ? "MFU"
                            : std::ranges::none_of(prices, has_mfu) ? "GEMM"
                                                                    : "MFU/GEMM";
  return fmt::format("{} {:>11} {:>16} {:>11} {:>8} {:>8} {:>8} {:>12}  layout\n", before, "step", "9 of 10 cases",
                     "tokens/s", share, "bubble", "idle", "memory");
}

// What the columns mean; the two that are easily taken for one where there is a pipeline.
std::string columns_text(const std::vector<LayoutPrice>& prices) {
  std::string text =
      "     9 of 10 cases: range in seconds; such a range holds the measured step of 9 of 10 similar published cases\n";
  if (std::ranges::any_of(prices, [](const LayoutPrice& price) { return price.layout.pipeline > 1; }))
    text +=
        "     bubble: share of the step that the busiest stage waits\n"
        "     idle: share of the pipeline's time that an average stage waits\n";
  return text;
}

// "174.6 B parameters", "0.8425 M parameters".
std::string parameters_text(const ModelConfig& model) {
  const double parameters = to_double(num_parameters(model));
  const bool is_small = parameters < 1e8;
  return fmt::format("{:.4g} {} parameters", parameters / (is_small ? 1e6 : 1e9), is_small ? "M" : "B");
}

std::string unfitted_line(const Accelerator& device) {
  return device.unfitted.empty() ? "" : unfitted_text(device) + "\n";
}

// A curve has its devices and batch point by point.
std::string problem_of_curve_text(const PlanProblem& problem) {
  return fmt::format("{} ({}) on {} ({} a node, {} each, {:.1f} GiB free), sequences of {} tokens\n{}",
                     problem.model_name, parameters_text(problem.model), problem.cluster.device.name,
                     problem.cluster.devices_per_node,
                     bytes_text(static_cast<std::size_t>(problem.cluster.device.memory_bytes)),
                     in_gib(free_bytes(problem)), problem.sequence_length, unfitted_line(problem.cluster.device));
}

// Nothing is priced as `other`: it has a column where a stage has some of it all the same.
std::vector<Category> shown_categories(const LayoutPrice& price) {
  std::vector<Category> shown;
  for (std::size_t c = 0; c < num_categories; ++c) {
    const auto category = static_cast<Category>(c);
    const auto has = [&](const MemoryByCategory& stage) { return stage[category] > 0; };
    if (category != Category::other || std::ranges::any_of(price.memory, has))
      shown.push_back(category);
  }
  return shown;
}

// What keeps `train` from running some of them, each reason once.
std::string marks_text(const PlanProblem& problem, const std::vector<LayoutPrice>& prices) {
  std::vector<std::string> reasons;
  for (const LayoutPrice& price : prices)
    if (const std::string reason = why_not_runnable(problem, price.layout);
        !reason.empty() && std::find(reasons.begin(), reasons.end(), reason) == reasons.end())
      reasons.push_back(reason);
  std::string text;
  for (const std::string& reason : reasons)
    text += fmt::format("   * estimated only: {}\n", reason);
  return text;
}

}  // namespace

std::string problem_text(const PlanProblem& problem, int num_devices, Index global_batch) {
  const Cluster& cluster = problem.cluster;
  return fmt::format("{} ({}) on {}, {} of {} tokens\n{}", problem.model_name, parameters_text(problem.model),
                     machine_text(cluster, num_devices), counted(global_batch, "sequence"), problem.sequence_length,
                     unfitted_line(cluster.device));
}

std::string ranking_text(const PlanProblem& problem, const std::vector<LayoutPrice>& prices, std::size_t most) {
  const std::vector<LayoutPrice> shown(prices.begin(),
                                       prices.begin() + static_cast<std::ptrdiff_t>(std::min(most, prices.size())));
  std::string text = head_text("    ", shown);
  for (std::size_t i = 0; i < shown.size(); ++i)
    text += row_text(fmt::format("{:>3}.", i + 1), problem, shown[i]);
  return text + columns_text(shown) + marks_text(problem, shown);
}

std::string price_text(const PlanProblem& problem, const LayoutPrice& price) {
  std::string text = fmt::format("{}\n  {} of {}; step {:.4g} s ({}), {} tokens/s, {}\n", price.layout.text(),
                                 counted(price.layout.num_microbatches(), "micro-batch"), price.layout.micro_batch,
                                 price.step_seconds, interval_text(price.step_interval),
                                 rounded_text(price.tokens_per_second, 4), price.flops_shares.text());
  if (problem.num_tokens > 0)
    text += fmt::format("  {}\n", run_cost_text(problem, price));
  text += "  time of the busiest stage\n";
  for (std::size_t i = 0; i < num_phases; ++i)
    if (const auto phase = static_cast<Phase>(i); price[phase] > 0)
      text += fmt::format("    {:<14} {:>9.4g} s {:>5.1f} %{}\n", to_string(phase), price[phase],
                          100 * price[phase] / price.step_seconds,
                          phase == Phase::backward && price.recompute_seconds > 0
                              ? fmt::format(" ({:.4g} s of it recompute)", price.recompute_seconds)
                              : "");
  constexpr double rounding = 1e-6;  // of a step
  if (price.overlapped_data_seconds > rounding * price.step_seconds)
    text += fmt::format("    (overlapped with compute: {:.4g} s of data_comm)\n", price.overlapped_data_seconds);
  const bool is_small = price.memory_bytes < static_cast<std::size_t>(gib);
  const auto in_unit = [&](std::size_t bytes) { return (is_small ? 1024 : 1) * in_gib(bytes); };
  text += fmt::format("  memory by stage, {} of {:.1f}\n    {:<8}", is_small ? "MiB" : "GiB",
                      in_unit(free_bytes(problem)), "stage");
  const std::vector<Category> categories = shown_categories(price);
  for (const Category category : categories)
    text += fmt::format(" {:>13}", to_string(category));
  text += fmt::format(" {:>9}\n", "total");
  for (std::size_t stage = 0; stage < price.memory.size(); ++stage) {
    const bool shown = stage < 2 || stage + 2 >= price.memory.size() || static_cast<int>(stage) == price.peak_stage;
    if (!shown)
      continue;
    text += fmt::format("    {:<8}", stage);
    for (const Category category : categories)
      text += fmt::format(" {:>13.2f}", in_unit(price.memory[stage][category]));
    text += fmt::format(" {:>9.2f}\n", in_unit(price.memory[stage].total()));
  }
  if (const std::string reason = why_not_runnable(problem, price.layout); !reason.empty())
    text += fmt::format("  estimated only: {}\n", reason);
  return text;
}

std::string alike_text(const PlanProblem& problem, const SearchResult& result) {
  if (result.num_alike < 2)
    return "";
  const LayoutPrice& fastest = *std::ranges::min_element(result.ranking, {}, &LayoutPrice::step_seconds);
  const double slower = result.ranking.front().step_seconds / fastest.step_seconds - 1;
  return fmt::format(
      "{} layouts differ by less than {:.0f} %, too little to be sure which is the fastest. The first one has {}.{}",
      result.num_alike, 100 * step_resolution(problem.cluster), simplest_text,
      slower > equal_share ? fmt::format(" The fastest one is {:.1f} % faster: {}", 100 * slower, fastest.layout.text())
                           : "");
}

std::string not_built_text(const SearchResult& result) {
  if (!result.not_built)
    return "";
  const LayoutPrice& other = *result.not_built;
  return fmt::format("{} would be {:.1f} % faster; {}", other.layout.text(), 100 * result.gain_of_not_built(),
                     why_not_runnable(other.layout));
}

std::string fewer_devices_text(const SearchResult& result) {
  if (!result.fewer_devices)
    return "";
  const LayoutPrice& fewer = *result.fewer_devices;
  return fmt::format("   {0} of these devices train {1:.2f} times as many tokens per second (--devices {0})\n",
                     fewer.layout.num_devices(), fewer.tokens_per_second / result.ranking.front().tokens_per_second);
}

std::string rejections_text(const std::vector<PlainRejection>& plain, const SearchResult& result, std::size_t most) {
  std::string text = fmt::format("not chosen ({} layouts considered, {} impossible, {} too large)\n",
                                 result.num_considered, result.num_impossible, result.num_too_large);
  for (const auto& [name, rejection] : plain)
    text += fmt::format("  {}: {}\n      {}\n", name, rejection.layout.text(), rejection.reason);
  for (std::size_t i = 0; i < result.rejections.size() && i < most; ++i) {
    const Rejection& rejection = result.rejections[i];
    text += fmt::format("  {}\n      {}\n", rejection.layout.text(), rejection.reason);
  }
  if (result.rejections.size() > most)
    text += fmt::format("  and {}\n", counted(static_cast<Index>(result.rejections.size() - most), "more split"));
  return text;
}

std::string comparison_text(const PlanProblem& problem, const std::vector<Layout>& layouts) {
  std::string text;
  std::vector<std::optional<LayoutPrice>> prices;
  std::optional<std::size_t> best;
  for (const Layout& layout : layouts) {
    const bool possible = why_impossible(problem, layout).empty();
    prices.push_back(possible ? std::optional(price_layout(problem, layout)) : std::nullopt);
    if (possible && why_too_large(problem, *prices.back()).empty() &&
        (!best || prices.back()->step_seconds < prices[*best]->step_seconds))
      best = prices.size() - 1;
  }
  std::vector<LayoutPrice> shown;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const std::optional<LayoutPrice>& price = prices[i];
    std::string remark = price ? why_too_large(problem, *price) : impossible_text(problem, layouts[i]);
    if (remark.empty())
      remark = i == best ? "the fastest of those that fit" : why_slower(problem, *price, *prices[*best]);
    const std::string number = std::to_string(i + 1);
    text += price ? row_text(fmt::format("{:>4}", number), problem, *price)
                  : fmt::format("{:>4} {}\n", number, layouts[i].text());
    text += fmt::format("       {}\n", remark);
    if (price)
      shown.push_back(*price);
  }
  return head_text("    ", shown) + text + columns_text(shown) + marks_text(problem, shown);
}

std::string scaling_text(const PlanProblem& problem, const std::vector<ScalePoint>& points, const Goal& goal) {
  std::string rows;
  std::vector<LayoutPrice> prices;
  for (const ScalePoint& point : points) {
    const std::string start = fmt::format("{:>8} {:>8}", point.num_devices, point.global_batch);
    if (!point.price) {
      rows += fmt::format("{}  {}\n", start, point.limited_by);
      continue;
    }
    prices.push_back(*point.price);
    rows += row_text(fmt::format("{} {:>8.1f} %", start, 100 * point.efficiency), problem, *point.price);
    if (problem.num_tokens > 0)
      rows += fmt::format("{:17} {}\n", "", run_cost_text(problem, *point.price));
    if (point.limited_by != "nothing")
      rows += fmt::format("{:17} {}{}\n", "", point.efficiency < 1 ? "limited by " : "", point.limited_by);
  }
  std::string text = problem_of_curve_text(problem) +
                     head_text(fmt::format("{:>8} {:>8} {:>10}", "devices", "batch", "efficiency"), prices) + rows;
  text +=
      "     efficiency: tokens per second and device, relative to the first row; the next line explains losses of 1 % "
      "or more\n";
  text += columns_text(prices) + marks_text(problem, prices);
  if (!prices.empty())
    for (const CurveGoal& each : goals_on_curve(points, goal))
      text += fmt::format("goal: {}\n", curve_goal_text(each));
  return text;
}

std::string common_layout_text(const std::vector<PlanProblem>& problems, const CommonLayout& common, const Goal& goal) {
  std::string text = common.layout ? fmt::format("best for all: {}\n", common.layout->text()) : "";
  for (const PlanProblem& problem : problems)
    text += unfitted_line(problem.cluster.device);
  std::vector<LayoutPrice> shown;
  std::string rows;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const std::string start = fmt::format("{:<20} {:>7} ", problems[i].cluster.name, problems[i].cluster.num_devices());
    if (!common.has(i)) {
      rows += fmt::format("{}{}\n", start, common.why_none[i]);
      continue;
    }
    rows +=
        row_text(start + (common.layout ? fmt::format("{:>6.1f} %", 100 * common.loss(i)) : fmt::format("{:>8}", "")),
                 problems[i], common.price(i));
    shown.push_back(common.price(i));
    if (problems[i].num_tokens > 0)
      rows += fmt::format("{:29}{}\n", "", run_cost_text(problems[i], common.price(i)));
    if (!common.layout)
      continue;
    rows += row_text(fmt::format("{:<37}", "  best for it alone"), problems[i], common.bests[i]);
    shown.push_back(common.bests[i]);
  }
  text += head_text(fmt::format("{:<20} {:>7} {:>8}", "", "devices", "slower"), shown) + rows + columns_text(shown) +
          marks_text(problems.front(), shown);
  for (const std::string& sentence : comparison_sentences(problems, common))
    text += sentence + "\n";
  for (std::size_t i = 0; i < problems.size(); ++i)
    if (common.has(i))
      for (const GoalResult& each : goal_results(common.price(i), goal))
        text += fmt::format("goal on {}: {}\n", problems[i].cluster.name, goal_text(each));
  return text;
}

}  // namespace espalier
