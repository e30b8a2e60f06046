// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch/device_selection.hpp"

#include <fmt/format.h>

#include <map>
#include <sstream>
#include <string_view>

#include "core/error.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"
#include "parallel/launch/launch_environment.hpp"
#include "parallel/mesh/host_ranks.hpp"

namespace espalier {
namespace {

std::string id_lines(const std::vector<Device>& devices) {
  std::string lines;
  for (const Device& device : devices)
    lines += device.id + '\n';
  return lines;
}

std::vector<std::vector<std::string>> ids_by_rank(const std::vector<std::string>& texts) {
  std::vector<std::vector<std::string>> ids(texts.size());
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    std::istringstream stream(texts[rank]);
    for (std::string id; std::getline(stream, id);)
      ids[rank].push_back(id);
  }
  return ids;
}

void require_devices(const DeviceSurvey& survey) {
  if (survey.devices.empty())
    throw Error(ExitCode::usage, {.what = "this build of Espalier needs an NVIDIA GPU, but finds none that it can use",
                                  .where = "this host",
                                  .got = survey.problem,
                                  .wanted = survey.wanted,
                                  .todo = survey.advice});
}

}  // namespace

std::vector<DeviceAssignment> assign_devices(const std::vector<std::vector<std::string>>& visible) {
  std::map<std::string, int> num_ranks;
  std::vector<DeviceAssignment> assignments;
  for (const std::vector<std::string>& ids : visible) {
    ESPALIER_ASSERT(!ids.empty(), "a rank without a device");
    std::size_t best = 0;
    for (std::size_t i = 1; i < ids.size(); ++i)
      if (num_ranks[ids[i]] < num_ranks[ids[best]])
        best = i;
    ++num_ranks[ids[best]];
    assignments.push_back({.index = static_cast<int>(best)});
  }
  for (std::size_t rank = 0; rank < assignments.size(); ++rank)
    assignments[rank].sharers = num_ranks[visible[rank][static_cast<std::size_t>(assignments[rank].index)]];
  return assignments;
}

void require_allowed_sharing(const std::vector<DeviceAssignment>& assignments, int local_rank, int num_devices,
                             int ranks_per_gpu) {
  const int sharers = assignments[static_cast<std::size_t>(local_rank)].sharers;
  if (sharers <= ranks_per_gpu)
    return;
  throw Error(
      ExitCode::usage,
      {.what = ranks_per_gpu == 1 ? "there are more ranks than GPUs" : "too many ranks share a GPU",
       .where = "one host of this job",
       .got = fmt::format("{} ranks, which see {} GPU{}: {} on one of them", assignments.size(), num_devices,
                          num_devices == 1 ? "" : "s", sharers),
       .wanted = fmt::format("at most {} rank{} per GPU", ranks_per_gpu, ranks_per_gpu == 1 ? "" : "s"),
       .todo = fmt::format("start one rank per GPU, or allow it with --ranks-per-gpu {} (or {}={}): MPI then moves the "
                           "data through host memory, as NCCL takes one rank per GPU only",
                           sharers, ranks_per_gpu_variable, sharers)});
}

int allowed_ranks_per_gpu() {
  return ranks_in_environment(ranks_per_gpu_variable, fmt::format("--ranks-per-gpu, or {},", ranks_per_gpu_variable))
      .value_or(1);
}

SelectedDevice select_device(const Communicator& world) {
  const DeviceSurvey survey = survey_devices();
  if (!survey.needed)
    return {};
  attempt_together(world, ExitCode::usage, [&] { require_devices(survey); });
  const Communicator host = host_ranks(world);
  const std::vector<std::string> texts = broadcast_texts(host, gather_texts(host, id_lines(survey.devices)), 0);
  const std::vector<DeviceAssignment> assignments = assign_devices(ids_by_rank(texts));
  const DeviceAssignment& own = assignments[static_cast<std::size_t>(host.rank())];
  const Device& device = survey.devices[static_cast<std::size_t>(own.index)];
  attempt_together(world, ExitCode::usage, [&] {
    require_allowed_sharing(assignments, host.rank(), static_cast<int>(survey.devices.size()), allowed_ranks_per_gpu());
  });
  attempt_together(world, ExitCode::usage, [&] { start_device(device, own.index); });
  return {.text = fmt::format("GPU {} ({}, {}){}", own.index, device.name, device.architecture,
                              own.sharers > 1 ? fmt::format(", shared by {} ranks", own.sharers) : ""),
          .sharers = all_reduce(world, std::int32_t{own.sharers}, ReduceOp::max)};
}

}  // namespace espalier
