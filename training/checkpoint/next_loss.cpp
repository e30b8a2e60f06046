// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/next_loss.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "io/pack/json_text.hpp"
#include "io/units.hpp"
#include "training/config/with_compute_type.hpp"

namespace espalier {
namespace {

// Of the coarser of the two precisions, when the run resumes in another.
double tolerance_between(const std::string& stored, ScalarType own) {
  if (stored.empty())
    return next_loss_tolerance(own);
  return with_compute_type(parse_precision(stored).value(), [&]<class T>() {
    return std::max(next_loss_tolerance(scalar_type_of<T>()), next_loss_tolerance(own));
  });
}

}  // namespace

double next_loss_tolerance(ScalarType compute) {
  switch (compute) {
    case ScalarType::fp64: return 1e-9;
    case ScalarType::fp32: return 1e-5;
    case ScalarType::fp16: return 2e-3;
    case ScalarType::bf16: return 1e-2;
  }
  return 0;
}

double require_finite_loss(Trainer& trainer) {
  const Index samples = trainer.next_samples();
  const double next = trainer.next_loss(samples);
  if (std::isfinite(next) || (trainer.steps_done() > 0 && std::isfinite(trainer.past_loss(samples))))
    return next;
  throw Error(ExitCode::numerical,
              {.what = "the training diverged: the weights give no finite loss",
               .where = fmt::format("after step {}", trainer.steps_done()),
               .got = fmt::format("loss {} of the next {}", std::abs(next), counted(samples, "sample")),
               .wanted = "a finite loss of these samples, or of those of the step before",
               .todo = fmt::format("nothing was saved of this step; {}", todo_when_diverged)});
}

std::optional<StoredState::NextLoss> next_loss_of(Trainer& trainer) {
  const Index samples = trainer.next_samples();
  const double loss = require_finite_loss(trainer);
  if (!std::isfinite(loss))  // JSON knows no other numbers
    return std::nullopt;
  return StoredState::NextLoss{.samples = samples, .loss = loss, .compute = to_string(trainer.compute_type())};
}

void check_next_loss(const std::optional<StoredState::NextLoss>& next, const std::string& checkpoint, Trainer& trainer,
                     const std::function<void(const std::string&)>& note) {
  if (!next) {
    note(
        "the checkpoint has no loss to check the resume with (checkpoint.check_loss was off, or the loss was not "
        "finite)");
    return;
  }
  const auto [samples, stored, compute] = *next;
  const double found = trainer.next_loss(samples);
  const double tolerance = tolerance_between(compute, trainer.compute_type());
  const double difference = std::abs(found - stored);
  if (!(difference <= tolerance * std::abs(stored)))  // nor when it is not a number
    throw Error(ExitCode::checkpoint,
                {.what = "the resumed model is not the saved one: the loss of the next samples differs",
                 .where = checkpoint,
                 .got = fmt::format("{:.9g} over {} samples", found, samples),
                 .wanted = fmt::format("{:.9g}, within {:g} of it", stored, tolerance),
                 .todo = "check whether the token files have changed; run `espalier checkpoint verify`, and `espalier "
                         "verify` on this machine. To use an older checkpoint: --resume CHECKPOINT. To skip this "
                         "check: checkpoint.check_loss=false"});
  note(fmt::format("the next {} samples have the loss that was stored: {:.6g} ({:.1e} off)", samples, found,
                   difference / std::abs(stored)));
}

}  // namespace espalier
