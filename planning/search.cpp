// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/search.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "io/units.hpp"
#include "planning/fewer_devices.hpp"
#include "planning/interval.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/layout_limits.hpp"
#include "planning/runnable.hpp"
#include "planning/why_slower.hpp"

namespace espalier {
namespace {

// Steps in the same bucket count as equally fast.
double speed_bucket(double step_seconds) { return std::round(std::log(step_seconds) / equal_share); }

bool better(const LayoutPrice& a, const LayoutPrice& b) {
  const auto key = [](const LayoutPrice& price) {
    return std::tuple(speed_bucket(price.step_seconds), complexity(price.layout), price.memory_bytes);
  };
  return key(a) < key(b);
}

// Layouts of a mesh that differ in one of these are simulated one by one: the closed form does not know which of their
// messages overlap with work, so it ranks them wrongly.
using Timetable = std::tuple<Index, int, ScheduleKind, bool, bool>;

Timetable timetable_of(const Layout& layout) {
  return {layout.micro_batch, layout.virtual_stages, layout.schedule, layout.data_inside_pipeline(),
          layout.sequence_parallel};
}

// A layout by its closed form: `bound` is the step without a wait for messages between stages, which the list of
// operations does not undercut by more than the closed form's own error.
struct Estimate {
  Layout layout;
  double step_seconds = 0;
  double bound = 0;
};

// The layouts of a mesh that may be its best: the first of each timetable.
using Choices = std::map<Timetable, Estimate>;

struct Candidates {
  std::map<MeshDegrees, Choices> fits;
  std::map<MeshDegrees, LayoutPrice> too_large;  // the smallest of each
  std::map<MeshDegrees, Rejection> impossible;
};

Candidates price_all(const PlanProblem& problem, const std::vector<Layout>& layouts, SearchResult& result) {
  Candidates found;
  for (const Layout& layout : layouts) {
    ++result.num_considered;
    const MeshDegrees mesh = degrees_of(layout);
    if (std::string reason = why_impossible(problem, layout); !reason.empty()) {
      ++result.num_impossible;
      found.impossible.try_emplace(mesh, Rejection{layout, Verdict::impossible, std::move(reason)});
      continue;
    }
    const std::size_t need = peak_bytes(memory_of_stages(problem, layout));
    if (result.smallest_bytes == 0 || need < result.smallest_bytes)
      result.smallest_bytes = need;
    if (!fits_memory(problem, need)) {
      ++result.num_too_large;
      const auto known = found.too_large.find(mesh);
      if (known == found.too_large.end() || need < known->second.memory_bytes)
        found.too_large.insert_or_assign(mesh, price_layout(problem, layout, Effort::estimate));
      continue;
    }
    const LayoutPrice price = price_layout(problem, layout, Effort::estimate);
    Estimate estimate{layout, price.step_seconds, price.step_seconds - price[Phase::pipeline_comm]};
    const auto [known, is_first] = found.fits[mesh].try_emplace(timetable_of(layout), estimate);
    const auto key = [&](const Estimate& of) {
      return std::pair(speed_bucket(of.step_seconds), complexity(of.layout));
    };
    if (!is_first && key(estimate) < key(known->second))
      known->second = std::move(estimate);
  }
  return found;
}

// Branch and bound: simulates the choices of a mesh in the order of their bounds, until none can be faster.
LayoutPrice best_choice(const PlanProblem& problem, const Choices& choices) {
  std::vector<const Estimate*> order;
  for (const auto& [timetable, estimate] : choices)
    order.push_back(&estimate);
  std::ranges::stable_sort(order, {}, &Estimate::bound);
  std::optional<LayoutPrice> best;
  for (const Estimate* estimate : order) {
    if (best && estimate->bound > best->step_seconds)
      break;
    LayoutPrice price = price_layout(problem, estimate->layout, Effort::simulate);
    if (!best || better(price, *best))
      best = std::move(price);
  }
  return *best;
}

// Of a mesh that is not among the best: chosen in closed form, and priced as everywhere else.
LayoutPrice estimated_choice(const PlanProblem& problem, const Choices& choices) {
  const auto seconds = [](const auto& choice) { return choice.second.step_seconds; };
  const auto fastest = std::ranges::min_element(choices, {}, seconds);
  return price_layout(problem, fastest->second.layout);
}

double bound_of(const Choices* choices) {
  const auto bound = [](const auto& choice) { return choice.second.bound; };
  return bound(*std::ranges::min_element(*choices, {}, bound));
}

// The ideas that everybody has first, for the devices and the batch of the space, one sequence a micro-batch.
std::vector<std::pair<std::string, Layout>> plain_layouts(const PlanProblem& problem, const LayoutSpace& space) {
  Layout start;
  start.global_batch = space.global_batch;
  start.precision = space.precisions.front();
  const int devices = space.num_devices;
  if (devices == 1)
    return {};
  std::vector<std::pair<std::string, Layout>> plain;
  Layout data = start;
  data.data = devices;
  plain.emplace_back("data parallelism alone", data);
  data.zero_stage = 3;
  plain.emplace_back("data parallelism with ZeRO-3", data);
  Layout tensor = start;
  tensor.tensor = devices;
  plain.emplace_back("tensor parallelism alone", tensor);
  Layout pipeline = start;
  pipeline.pipeline = static_cast<int>(std::min<Index>(devices, problem.model.num_layers));
  while (devices % pipeline.pipeline != 0)
    --pipeline.pipeline;
  pipeline.data = devices / pipeline.pipeline;
  if (pipeline.pipeline > 1 && space.global_batch % pipeline.data == 0) {
    Layout naive = pipeline;
    naive.micro_batch = space.global_batch / pipeline.data;
    plain.emplace_back("the deepest pipeline, without micro-batches", naive);
    plain.emplace_back("the deepest pipeline, with micro-batches", pipeline);
  }
  return plain;
}

// Why a search over the space has not found it.
std::string why_not_found(const LayoutSpace& space, const Layout& layout) {
  if (!choices_left(space, layout).empty())
    return "the fixed choices exclude it";
  if (std::string lacks = why_not_runnable(layout); space.only_runnable && !lacks.empty())
    return lacks;
  if (layout.context > 1 && !searches_context(space))
    return "it was not searched (--context searches it, but train has no context parallelism yet)";
  return "it was not searched (it is beyond the bounds of the search, which --fix overrides)";
}

// Of a layout that can be the answer as well as `best`.
Rejection not_the_answer(const PlanProblem& problem, const LayoutPrice& price, const LayoutPrice& best) {
  if (price.step_seconds >= best.step_seconds)
    return {price.layout, Verdict::slower, why_slower(problem, price, best)};
  const std::string more = what_is_more_complex(price.layout, best.layout);
  return {
      price.layout, Verdict::alike,
      fmt::format("faster by {}, too little to be sure{}", against_text(price, best), more.empty() ? "" : "; " + more)};
}

// Of an idea that fits; `best` may be none.
Rejection not_chosen(const PlanProblem& problem, const LayoutSpace& space, const LayoutPrice& price,
                     const LayoutPrice* best) {
  const auto is_in_space = [&] {
    return choices_left(space, price.layout).empty() && price.layout.context == best->layout.context &&
           (!space.only_runnable || why_not_runnable(price.layout).empty());
  };
  if (best && (price.step_seconds >= best->step_seconds ||
               (price.step_seconds * (1 + step_resolution(problem.cluster)) > best->step_seconds && is_in_space())))
    return not_the_answer(problem, price, *best);
  return {price.layout, Verdict::not_searched,
          fmt::format("{}, but {}", best ? "faster by " + against_text(price, *best) : "fits",
                      why_not_found(space, price.layout))};
}

// The best variant of an idea: with any recomputation and, unless its micro-batch is larger than one sequence, with
// micro-batches of up to 8. The fastest that fits, else the one that needs least memory; none where all are impossible.
std::optional<LayoutPrice> tuned(const PlanProblem& problem, const Layout& idea) {
  std::optional<LayoutPrice> best;
  const auto key = [&](const LayoutPrice& price) {
    const bool fits = why_too_large(problem, price).empty();
    return std::pair(!fits, fits ? price.step_seconds : static_cast<double>(price.memory_bytes));
  };
  for (const Recompute recompute : all_recompute_modes())
    for (const Index micro_batch : {1, 2, 4, 8}) {
      Layout layout = idea;
      layout.recompute = recompute;
      layout.micro_batch *= micro_batch;
      if ((micro_batch > 1 && idea.micro_batch > 1) || !why_impossible(problem, layout).empty())
        continue;
      if (LayoutPrice price = price_layout(problem, layout); !best || key(price) < key(*best))
        best = std::move(price);
    }
  return best;
}

Layout with_dividing_batch(Layout layout) {
  layout.global_batch = layout.micro_batch * layout.data;
  return layout;
}

// Another batch would not save what has no room for one micro-batch.
std::string with_memory(std::string reason, const PlanProblem& problem, const std::optional<LayoutPrice>& divided) {
  const std::string memory = divided ? why_too_large(problem, *divided) : "";
  return memory.empty() ? reason : reason + "; with a batch that divides it " + memory;
}

// An idea keeps what makes it one, and need not have what --fix gives.
std::string own_choices_text(const LayoutSpace& space, const Layout& idea) {
  const std::vector<std::string> left = choices_left(space, idea);
  return left.empty() ? "" : fmt::format(" (estimated with its own {}, not the fixed one)", fmt::join(left, ", "));
}

Rejection rejection_of(const PlanProblem& problem, const LayoutSpace& space, const Layout& idea,
                       const LayoutPrice* best) {
  const std::optional<LayoutPrice> price = tuned(problem, idea);
  if (!price)
    return {idea, Verdict::impossible,
            with_memory(why_impossible(problem, idea), problem, tuned(problem, with_dividing_batch(idea)))};
  if (const std::string reason = why_too_large(problem, *price); !reason.empty())
    return {price->layout, Verdict::too_large, reason + own_choices_text(space, price->layout)};
  Rejection rejection = not_chosen(problem, space, *price, best);
  rejection.reason += own_choices_text(space, price->layout);
  return rejection;
}

// What a long sequence suggests where the search was not asked for it: the best with ranks that share a sequence.
std::optional<Rejection> rejected_context(const PlanProblem& problem, const LayoutSpace& space,
                                          const LayoutPrice* best) {
  constexpr Index long_sequence = 8192;  // tokens, from where one sequence fills much of a device
  if (problem.sequence_length < long_sequence || searches_context(space))
    return std::nullopt;
  LayoutSpace open = space;
  open.only_runnable = false;
  std::optional<LayoutPrice> fastest;
  for (const int context : {2, 4, 8, 16}) {
    open.context = context;
    if (const std::optional<Layout> layout = fastest_layout(problem, enumerate_layouts(problem, open)))
      if (LayoutPrice price = price_layout(problem, *layout); !fastest || better(price, *fastest))
        fastest = std::move(price);
  }
  if (!fastest)
    return std::nullopt;
  return not_chosen(problem, space, *fastest, best);
}

// Layouts with shorter steps are as good an answer as the fastest: the prediction does not tell them apart, and they
// are as fast as wanted. Where none is, the fastest alone is the answer.
double most_seconds(const PlanProblem& problem, const LayoutSpace& space, double fastest) {
  const double most = fastest * (1 + step_resolution(problem.cluster));
  if (space.most_step_seconds <= 0)
    return most;
  return std::min(most, std::nextafter(std::max(space.most_step_seconds, fastest), 2 * most));
}

const LayoutPrice& fastest_of(const std::vector<LayoutPrice>& ranking) {
  return *std::ranges::min_element(ranking, {}, &LayoutPrice::step_seconds);
}

void simplest_first(std::vector<LayoutPrice>& ranking, std::size_t num_alike) {
  const auto end = ranking.begin() + static_cast<std::ptrdiff_t>(num_alike);
  const auto simplest = std::min_element(ranking.begin(), end, [](const LayoutPrice& a, const LayoutPrice& b) {
    return std::pair(a.layout.pipeline, a.layout.tensor) < std::pair(b.layout.pipeline, b.layout.tensor);
  });
  std::rotate(ranking.begin(), simplest, simplest + 1);
}

// The best layout of the same mesh with the lowest ZeRO stage below that of `price` that fits and takes less than
// `most` seconds a step.
std::optional<LayoutPrice> with_lower_zero_stage(const PlanProblem& problem, LayoutSpace space,
                                                 const LayoutPrice& price, double most) {
  if (space.zero_stage)
    return std::nullopt;
  const Layout& layout = price.layout;
  std::tie(space.tensor, space.context, space.data, space.pipeline) = degrees_of(layout);
  space.precisions = {layout.precision};
  for (int stage = 0; stage < layout.zero_stage; ++stage) {
    space.zero_stage = stage;
    SearchResult same = search_layouts(problem, space, 1);
    if (!same.ranking.empty() && same.ranking.front().step_seconds < most)
      return std::move(same.ranking.front());
  }
  return std::nullopt;
}

// Whether a layout is an idea with other choices for what the idea leaves open.
bool is_variant_of(const Layout& layout, const Layout& idea) {
  return degrees_of(layout) == degrees_of(idea) && (layout.zero_stage == 3) == (idea.zero_stage == 3) &&
         (layout.pipeline == 1 || (layout.num_microbatches() == 1) == (idea.num_microbatches() == 1));
}

}  // namespace

int complexity(const Layout& layout) {
  return layout.zero_stage + (layout.shard_replicas > 0 ? 1 : 0) + (layout.sequence_parallel ? 1 : 0) +
         (layout.recompute != Recompute::none ? 1 : 0) + (layout.virtual_stages - 1) +
         (layout.schedule == ScheduleKind::zero_bubble ? 1 : 0) + (layout.data_inside_pipeline() ? 0 : 1);
}

std::string impossible_text(const PlanProblem& problem, const Layout& layout) {
  std::string reason = why_impossible(problem, layout);
  const Layout divided = with_dividing_batch(layout);
  if (reason.empty() || !why_impossible(problem, divided).empty())
    return reason;
  return with_memory(reason, problem, price_layout(problem, divided));
}

std::vector<PlainRejection> plain_rejections(const PlanProblem& problem, const LayoutSpace& space,
                                             const LayoutPrice* best) {
  std::vector<PlainRejection> rejections;
  for (const auto& [name, layout] : plain_layouts(problem, space))
    if (!best || !is_variant_of(best->layout, layout))
      rejections.push_back({name, rejection_of(problem, space, layout, best)});
  if (std::optional<Rejection> context = rejected_context(problem, space, best))
    rejections.push_back({"context parallelism", std::move(*context)});
  return rejections;
}

SearchResult search_layouts(const PlanProblem& problem, const LayoutSpace& space, std::size_t most_simulated,
                            Prefer prefer) {
  SearchResult result;
  const Candidates found = price_all(problem, enumerate_layouts(problem, space), result);
  std::vector<const Choices*> meshes;
  for (const auto& [mesh, choices] : found.fits)
    meshes.push_back(&choices);
  std::ranges::stable_sort(meshes, {}, bound_of);
  std::size_t simulated = std::min(most_simulated, meshes.size());
  for (std::size_t i = 0; i < meshes.size(); ++i)
    result.ranking.push_back(i < simulated ? best_choice(problem, *meshes[i]) : estimated_choice(problem, *meshes[i]));
  std::stable_sort(result.ranking.begin(), result.ranking.begin() + static_cast<std::ptrdiff_t>(simulated), better);
  const double most = simulated > 0 ? most_seconds(problem, space, result.ranking.front().step_seconds) : 0;
  while (result.num_alike < simulated && result.ranking[result.num_alike].step_seconds < most)
    ++result.num_alike;
  if (prefer == Prefer::simplest && simulated > 0) {
    simplest_first(result.ranking, result.num_alike);
    if (auto simpler = with_lower_zero_stage(problem, space, result.ranking.front(), most)) {
      result.ranking.insert(result.ranking.begin(), std::move(*simpler));
      ++result.num_alike;
      ++simulated;
    }
  }

  for (std::size_t i = 1; i < result.ranking.size(); ++i)
    result.rejections.push_back(not_the_answer(problem, result.ranking[i], result.ranking.front()));
  result.ranking.resize(simulated);
  std::vector<const LayoutPrice*> too_large;
  for (const auto& [mesh, price] : found.too_large)
    if (!found.fits.contains(mesh))
      too_large.push_back(&price);
  std::ranges::stable_sort(too_large, {}, &LayoutPrice::memory_bytes);
  for (const LayoutPrice* const price : too_large)
    result.rejections.push_back({price->layout, Verdict::too_large, why_too_large(problem, *price)});
  for (const auto& [mesh, rejection] : found.impossible)
    if (!found.fits.contains(mesh) && !found.too_large.contains(mesh))
      result.rejections.push_back(rejection);
  return result;
}

SearchResult search_runnable(const PlanProblem& problem, LayoutSpace& space, std::size_t most_simulated,
                             Prefer prefer) {
  space.only_runnable = true;
  if (SearchResult result = search_layouts(problem, space, most_simulated, prefer); !result.ranking.empty())
    return result;
  space.only_runnable = false;
  return search_layouts(problem, space, most_simulated, prefer);
}

SearchResult search_recommended(const PlanProblem& problem, LayoutSpace& space) {
  return search_runnable(problem, space, 16, Prefer::simplest);
}

SearchResult recommend_layouts(const PlanProblem& problem, LayoutSpace& space) {
  SearchResult result = search_recommended(problem, space);
  if (!result.ranking.empty())
    result.fewer_devices = faster_on_fewer(problem, space, result.ranking.front());
  if (!space.only_runnable)
    return result;
  LayoutSpace all = space;
  all.only_runnable = false;
  const SearchResult open = search_layouts(problem, all);
  const auto is_built = [&](const LayoutPrice& price) { return why_not_runnable(price.layout).empty(); };
  const auto other = std::ranges::find_if_not(open.ranking, is_built);
  if (other != open.ranking.end() && fastest_of(result.ranking).step_seconds > (1 + worthwhile) * other->step_seconds)
    result.not_built = *other;
  return result;
}

}  // namespace espalier
