// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/memory_ledger.hpp"
#include "core/phases.hpp"
#include "diagnosis/report_data.hpp"

namespace espalier {

const char* colour_of(Phase phase) {
  switch (phase) {
    case Phase::forward: return "blue";
    case Phase::backward: return "orange";
    case Phase::bubble: return "pale";
    case Phase::tensor_comm: return "red";
    case Phase::pipeline_comm: return "pink";
    case Phase::data_comm: return "wine";
    case Phase::optimizer: return "purple";
    case Phase::data: return "teal";
    case Phase::checkpoint: return "olive";
    case Phase::other: break;
  }
  return "grey";
}

static const char* colour_of(Category category) {
  switch (category) {
    case Category::weights: return "blue";
    case Category::gradients: return "orange";
    case Category::optimizer: return colour_of(Phase::optimizer);
    case Category::activations: return "green";
    case Category::workspace: return "teal";
    case Category::communication: return "red";
    case Category::other: break;
  }
  return colour_of(Phase::other);
}

ReportJson colours_data() {
  ReportJson colours = ReportJson::object();
  for (std::size_t i = 0; i < num_phases; ++i)
    colours[to_string(static_cast<Phase>(i))] = colour_of(static_cast<Phase>(i));
  for (std::size_t i = 0; i < num_categories; ++i)
    colours[to_string(static_cast<Category>(i))] = colour_of(static_cast<Category>(i));
  return colours;
}

}  // namespace espalier
