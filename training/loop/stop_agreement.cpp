// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/stop_agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "io/units.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"

namespace espalier {

StopAgreement::StopAgreement(const RunConfig& config, Index stop_after, const Communicator& world,
                             std::function<std::string()> request, std::function<void(const std::string&)> note)
    : config_(config), stop_after_(stop_after), world_(world), request_(std::move(request)), note_(std::move(note)) {}

bool StopAgreement::is_asked() {
  if (!cause_.empty())
    return true;
  if (const std::string request = request_ ? request_() : std::string(); !request.empty())
    cause_ = world_.size() == 1 ? "asked to stop by " + request
                                : fmt::format("rank {} was asked to stop by {}", world_.rank(), request);
  else if (stop_after_ > 0 && steps_ >= stop_after_)
    cause_ = fmt::format("stopped after {}", counted(stop_after_, "step"));
  else if (begun_ && config_.run.max_duration > 0 && since_launch_.seconds() >= config_.run.max_duration)
    cause_ = "run.max_duration is over";
  return !cause_.empty();
}

bool StopAgreement::agree() {
  if (!agreed_)
    agree_to(all_reduce(world_, Index{is_asked() ? 1 : 0}, ReduceOp::max) > 0);
  return agreed_;
}

void StopAgreement::agree_to(bool stop) {
  if (agreed_ || !stop)
    return;
  agreed_ = true;
  const std::vector<std::string> causes = gather_texts(world_, cause_);
  const auto first = std::ranges::find_if(causes, [](const std::string& cause) { return !cause.empty(); });
  cause_ = broadcast_text(world_, first == causes.end() ? std::string() : *first, 0);
  note_(fmt::format("stop requested, {}: {}", begun_ ? "saving" : "nothing to save", cause_));
}

}  // namespace espalier
