// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/next_loss.hpp"

#include <fmt/format.h>

#include <cmath>

namespace espalier {
namespace {

struct StoredLoss {
  Index samples = 0;
  double loss = 0;
};

StoredLoss stored_loss(const nlohmann::json& json, const std::string& checkpoint) {
  constexpr Index most_samples = Index{1} << 20;
  try {
    const StoredLoss stored{json.at("samples"), json.at("loss")};
    if (stored.samples >= 1 && stored.samples <= most_samples)
      return stored;
  } catch (const nlohmann::json::exception&) {  // told below
  }
  throw Error(ExitCode::checkpoint, {.what = "the checkpoint's next_loss cannot be understood",
                                     .where = checkpoint,
                                     .got = json.dump(),
                                     .wanted = fmt::format("loss, and samples from 1 to {}", most_samples),
                                     .todo = "resume from an older checkpoint"});
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

template <class T>
void store_next_loss(nlohmann::json& state, Trainer<T>& trainer) {
  const Index samples = trainer.next_samples();
  const double loss = trainer.next_loss(samples);
  if (std::isfinite(loss))  // JSON knows no other numbers
    state["next_loss"] = {{"samples", samples}, {"loss", loss}};
}

template <class T>
void check_next_loss(const nlohmann::json& state, const std::string& checkpoint, Trainer<T>& trainer,
                     const std::function<void(const std::string&)>& note) {
  if (!state.contains("next_loss")) {
    note("the checkpoint holds no loss to check the resume by (checkpoint.check_loss was off)");
    return;
  }
  const auto [samples, stored] = stored_loss(state.at("next_loss"), checkpoint);
  const double found = trainer.next_loss(samples);
  const double tolerance = next_loss_tolerance(scalar_type_of<T>());
  const double difference = std::abs(found - stored);
  if (!(difference <= tolerance * std::abs(stored)))  // nor when it is not a number
    throw Error(
        ExitCode::checkpoint,
        {.what = "the resumed model is not the one that was saved: the next samples have another loss",
         .where = checkpoint,
         .got = fmt::format("{:.9g} over {} samples", found, samples),
         .wanted = fmt::format("{:.9g}, within {:g} of it", stored, tolerance),
         .todo = "have the token files changed? does `espalier checkpoint verify` pass, and `espalier verify` on "
                 "this machine? Without this check: checkpoint.check_loss=false"});
  note(fmt::format("the next {} samples have the loss that was stored: {:.6g} ({:.1e} off)", samples, found,
                   difference / std::abs(stored)));
}

#define ESPALIER_INSTANTIATE(T)                                                            \
  template void store_next_loss<T>(nlohmann::json&, Trainer<T>&);                          \
  template void check_next_loss<T>(const nlohmann::json&, const std::string&, Trainer<T>&, \
                                   const std::function<void(const std::string&)>&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
