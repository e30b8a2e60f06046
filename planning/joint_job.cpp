// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/joint_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "core/scalars.hpp"
#include "io/units.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/layer_time.hpp"
#include "planning/layout_limits.hpp"
#include "planning/time_text.hpp"

namespace espalier {
namespace {

constexpr std::size_t most_simulated_jobs = 8;

// A pipeline whose first stages lie on `problems[0]`.
struct Split {
  std::array<const PlanProblem*, 2> problems;
  std::array<int, 2> stages;

  int side(int stage) const { return stage < stages[0] ? 0 : 1; }
  const PlanProblem& problem(int stage) const { return *problems[static_cast<std::size_t>(side(stage))]; }
};

class JointSearcher {
 public:
  JointSearcher(const std::vector<PlanProblem>& problems, const LayoutSpace& space, const ClusterLink& link)
      : own_{problems[0], problems[1]}, whole_{problems[0], problems[1]}, space_(space), link_(link) {
    const int devices = own_[0].cluster.num_devices() + own_[1].cluster.num_devices();
    for (PlanProblem& each : whole_)  // each machine as if it had them all: its part of a price is then its own
      each.cluster = with_devices(each.cluster, devices);
    space_.num_devices = devices;
  }

  JointSearch run() {
    std::vector<JointJob> jobs;
    for (const int first : {0, 1})
      for (const Layout& layout : layouts())
        if (std::optional<JointJob> job = priced(first, layout, Effort::estimate))
          jobs.push_back(std::move(*job));
    std::ranges::stable_sort(jobs, {}, &JointJob::step_seconds);
    JointSearch search;
    for (std::size_t i = 0; i < std::min(most_simulated_jobs, jobs.size()); ++i)
      if (std::optional<JointJob> job = priced(jobs[i].first, jobs[i].layout, Effort::simulate);
          job && (!search.job || job->step_seconds < search.job->step_seconds))
        search.job = std::move(job);
    if (!search.job)
      search.why_none = why_none_.empty()
                            ? "no pipeline with the schedule 1f1b, ZeRO up to 1 and a micro-batch of 1, 2, 4 or 8 "
                              "divides the devices of both clusters and keeps the fixed choices"
                            : why_none_;
    return search;
  }

 private:
  // Ranks of a stage are as many on both sides, so they divide both.
  std::vector<Layout> layouts() const {
    std::vector<Layout> found;
    const int common = std::gcd(own_[0].cluster.num_devices(), own_[1].cluster.num_devices());
    for (int tensor = 1; tensor <= common; ++tensor)
      for (int data = 1; tensor * data <= common; ++data)
        for (const Index micro_batch : {1, 2, 4, 8})
          for (const Recompute recompute : all_recompute_modes())
            for (const int zero_stage : {0, 1}) {
              Layout layout{.tensor = tensor,
                            .data = data,
                            .pipeline = space_.num_devices / (tensor * data),
                            .micro_batch = micro_batch,
                            .global_batch = space_.global_batch,
                            .recompute = recompute,
                            .zero_stage = zero_stage,
                            .sequence_parallel = tensor > 1,
                            .precision = space_.precisions.front()};
              const bool divides = common % (tensor * data) == 0 && space_.global_batch % (micro_batch * data) == 0;
              if (divides && layout.acting_zero_stage() == zero_stage && choices_left(space_, layout).empty())
                found.push_back(layout);
            }
    return found;
  }

  std::optional<JointJob> priced(int first, const Layout& open, Effort effort) {
    const int ranks = open.tensor * open.data;
    Split split;
    for (const std::size_t side : {0, 1}) {
      const auto which = static_cast<std::size_t>(first == 0 ? side : 1 - side);
      split.problems[side] = &whole_[which];
      split.stages[side] = own_[which].cluster.num_devices() / ranks;
    }
    Layout layout = open;
    for (const PlanProblem& problem : whole_)
      if (std::string reason = why_impossible(problem, layout); !reason.empty())
        return none(fmt::format("on {}: {}", problem.cluster.name, reason));
    std::vector<MemoryByCategory> memory;
    if (!divide_layers(split, layout, memory))
      return std::nullopt;
    return combined(first, split, layout, memory, effort);
  }

  std::nullopt_t none(std::string reason) {
    if (why_none_.empty())
      why_none_ = std::move(reason);
    return std::nullopt;
  }

  // Block by block to the stage that is then done first; where a device has no room, its side gets no more.
  bool divide_layers(const Split& split, Layout& layout, std::vector<MemoryByCategory>& memory) {
    const ModelConfig& model = split.problems[0]->model;
    std::array<double, 2> block{};
    std::array<double, 2> head{};
    for (const std::size_t side : {0, 1}) {
      const PlanProblem& problem = *split.problems[side];
      block[side] =
          block_time(model, problem.cluster, layout, problem.implementation, problem.sequence_length).seconds();
      head[side] = head_time(model, problem.cluster, layout, problem.implementation, problem.sequence_length).seconds();
    }
    std::array<Index, 2> most{model.num_layers, model.num_layers};  // blocks of a stage of each side
    while (true) {
      if (most[0] * split.stages[0] + most[1] * split.stages[1] < model.num_layers || most[0] < 1 || most[1] < 1) {
        none(fmt::format("{} does not fit", layout.text()));
        return false;
      }
      layout.layers.assign(static_cast<std::size_t>(layout.pipeline), 1);
      for (Index given = layout.pipeline; given < model.num_layers; ++given) {
        int next = -1;
        double least = 0;
        for (int stage = 0; stage < layout.pipeline; ++stage) {
          const auto side = static_cast<std::size_t>(split.side(stage));
          const Index blocks = layout.layers[static_cast<std::size_t>(stage)] + 1;
          const double seconds = to_double(blocks) * block[side] + (stage + 1 == layout.pipeline ? head[side] : 0);
          if (blocks <= most[side] && (next < 0 || seconds < least)) {
            next = stage;
            least = seconds;
          }
        }
        ++layout.layers[static_cast<std::size_t>(next)];
      }
      memory = memory_of_stages(*split.problems[0], layout);
      bool fits = true;
      for (int stage = 0; stage < layout.pipeline && fits; ++stage)
        if (!fits_memory(split.problem(stage), memory[static_cast<std::size_t>(stage)].total())) {
          most[static_cast<std::size_t>(split.side(stage))] = layout.layers[static_cast<std::size_t>(stage)] - 1;
          fits = false;
        }
      if (fits)
        return true;
    }
  }

  JointJob combined(int first, const Split& split, const Layout& layout, const std::vector<MemoryByCategory>& memory,
                    Effort effort) const {
    const std::array<LayoutPrice, 2> prices{price_layout(*split.problems[0], layout, Effort::estimate),
                                            price_layout(*split.problems[1], layout, Effort::estimate)};
    JointJob job;
    job.first = first;
    job.first_stages = split.stages[0];
    job.layout = layout;
    PipelineCosts costs{.schedule = layout.schedule, .microbatches = layout.num_microbatches(), .chunks = {}};
    for (int stage = 0; stage < layout.pipeline; ++stage) {
      const LayoutPrice& price = prices[static_cast<std::size_t>(split.side(stage))];
      costs.chunks.push_back({price.chunks[static_cast<std::size_t>(stage)].front().with_collectives});
    }
    const ModelConfig& model = split.problems[0]->model;
    const Implementation& program = split.problems[0]->implementation;
    const double rows = to_double(layout.micro_batch * split.problems[0]->sequence_length) * layout.data;
    const double sent = stage_output_bytes(program, layout.precision, rows, model.hidden_size) / link_.bandwidth;
    job.link_seconds = link_.latency + sent;
    costs.message = std::max(prices[0].message_seconds, prices[1].message_seconds);
    costs.delay = [&](int stage, const Operation& send) {
      const bool crosses = (send.kind == OperationKind::send_activations && stage + 1 == job.first_stages) ||
                           (send.kind == OperationKind::send_gradients && stage == job.first_stages);
      return crosses ? std::max(0.0, job.link_seconds - costs.message) : 0;
    };
    // The closed form does not know the link: the first micro-batch crosses it twice.
    double window = effort == Effort::simulate ? pipeline_time(costs).window
                                               : estimate_pipeline_time(costs).window + 2 * job.link_seconds;
    window = std::max(window, to_double(layout.num_microbatches()) * sent);  // the link carries them one after another
    double after = 0;
    job.step_interval = {1, 1};
    for (const LayoutPrice& price : prices) {
      after = std::max(after, price[Phase::data_comm] + price[Phase::optimizer] + price[Phase::other]);
      job.step_interval.low = std::min(job.step_interval.low, price.step_interval.low / price.step_seconds);
      job.step_interval.high = std::max(job.step_interval.high, price.step_interval.high / price.step_seconds);
    }
    if (model.tied_embeddings)  // both ends add up their part of the table's gradient
      after += 2 * link_.latency + layout.data * to_double(model.vocab_size * model.hidden_size) *
                                       sent_gradient_bytes(program, layout.precision) / link_.bandwidth;
    job.step_seconds = window + after;
    job.step_interval = {job.step_interval.low * job.step_seconds, job.step_interval.high * job.step_seconds};
    job.tokens_per_second = to_double(layout.global_batch * split.problems[0]->sequence_length) / job.step_seconds;
    job.memory_bytes.assign(2, 0);
    for (int stage = 0; stage < layout.pipeline; ++stage) {
      std::size_t& most = job.memory_bytes[static_cast<std::size_t>(split.side(stage) == 0 ? first : 1 - first)];
      most = std::max(most, memory[static_cast<std::size_t>(stage)].total());
    }
    return job;
  }

  std::array<PlanProblem, 2> own_;
  std::array<PlanProblem, 2> whole_;
  LayoutSpace space_;
  ClusterLink link_;
  std::string why_none_;
};

}  // namespace

Index JointJob::layers_on(int problem) const {
  const auto middle = layout.layers.begin() + first_stages;
  const Index before = std::accumulate(layout.layers.begin(), middle, Index{0});
  return problem == first ? before : std::accumulate(middle, layout.layers.end(), Index{0});
}

std::optional<RunCost> JointJob::run_cost(const std::vector<PlanProblem>& problems) const {
  if (problems.front().num_tokens == 0)
    return std::nullopt;
  return espalier::run_cost(problems, {step_seconds, step_interval},
                            to_double(layout.global_batch * problems.front().sequence_length));
}

JointSearch search_joint_job(const std::vector<PlanProblem>& problems, const LayoutSpace& space,
                             const ClusterLink& link) {
  return JointSearcher(problems, space, link).run();
}

std::string joint_job_text(const std::vector<PlanProblem>& problems, const JointSearch& search, double alone) {
  if (!search.job)
    return fmt::format("no job across both clusters was found: {}.\n", search.why_none);
  const JointJob& job = *search.job;
  const auto side = [&](int which, int stages) {
    return fmt::format("{} with {} on {}", counted(stages, "stage"), counted(job.layers_on(which), "layer"),
                       problems[static_cast<std::size_t>(which)].cluster.name);
  };
  const auto memory = [&](std::size_t which) {
    return fmt::format("{} on {}", bytes_text(job.memory_bytes[which]), problems[which].cluster.name);
  };
  const std::optional<RunCost> run = job.run_cost(problems);
  return fmt::format(
      "one job across both clusters: {}.\n"
      "It has {}, then {}.\n"
      "A step takes {} ({}), which is {} tokens/s{}.\n{}"
      "A device needs up to {} and {}.\n"
      "Sending one micro-batch of all replicas over the link takes {}.\n"
      "Estimated only: no job has run across two clusters.\n",
      job.layout.text(), side(job.first, job.first_stages), side(1 - job.first, job.layout.pipeline - job.first_stages),
      time_text(job.step_seconds), interval_text(job.step_interval), rounded_text(job.tokens_per_second, 4),
      alone > 0 ? fmt::format(", {:.2f} times as many as the faster cluster alone", job.tokens_per_second / alone) : "",
      run ? run_cost_text(problems.front(), *run) + ".\n" : "", memory(0), memory(1),
      quantity_text(Quantity::seconds, job.link_seconds));
}

}  // namespace espalier
