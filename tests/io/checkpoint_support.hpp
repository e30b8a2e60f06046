// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <numeric>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "tests/io/support.hpp"

namespace espalier::test {

/// A logical tensor (4, 6) with values that name their places, and a scalar-like bias.
struct Model {
  std::vector<float> weight = std::vector<float>(24);
  std::vector<double> bias{0.5, -1.25, 3e300};
  float scale = 1024;

  explicit Model(float first = 0) { std::iota(weight.begin(), weight.end(), first); }
  std::vector<TensorBlock> blocks() const {
    return {whole_tensor("weights/h.0.weight", ScalarType::fp32, {4, 6}, weight.data()),
            whole_tensor("weights/h.0.bias", ScalarType::fp64, {3}, bias.data()),
            whole_tensor("loss_scale", ScalarType::fp32, {}, &scale)};
  }
};

inline CheckpointInfo info_of(Index step) {
  CheckpointInfo info;
  info.run = "test";
  info.step = step;
  info.layout = {"data 1", 1};
  info.state = {{"position", 8 * step}, {"seed", 42}, {"config", "[model]\n"}, {"loss", 1.0 / 3}};
  return info;
}

inline Path save(const Path& directory, Index step, const Model& model = Model()) {
  return save_checkpoint(directory, info_of(step), model.blocks());
}

/// By the run of that id.
inline Path save_as(const std::string& owner, const Path& directory, Index step) {
  CheckpointInfo info = info_of(step);
  info.owner = owner;
  return save_checkpoint(directory, info, Model().blocks());
}

/// Reads everything; true if every value is the model's.
inline bool loads(const Path& path, const Model& model) {
  const CheckpointReader reader(path);
  Model found(-1);
  found.bias.assign(3, 0);
  found.scale = 0;
  reader.read("weights/h.0.weight", {4, 6}, ScalarType::fp32, found.weight.data());
  reader.read("weights/h.0.bias", {3}, ScalarType::fp64, found.bias.data());
  reader.read("loss_scale", {}, ScalarType::fp32, &found.scale);
  return found.weight == model.weight && found.bias == model.bias && found.scale == model.scale;
}

inline std::vector<std::string> names_in(const Path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace espalier::test
