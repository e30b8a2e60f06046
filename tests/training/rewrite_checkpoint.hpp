// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>

#include "core/tensor.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "tests/training/run_starts.hpp"

namespace espalier::test {

using Tensors = std::map<std::string, std::vector<float>>;

/// Writes the run's newest checkpoint again, with right checksums, after `change` of its tensors and state.
inline void rewrite(const Path& run, const std::function<void(Tensors&, nlohmann::json&)>& change) {
  on_root([&] {
    const Path path = find_checkpoints(run / "checkpoints").at(0).path;
    Tensors tensors;
    CheckpointInfo info;
    std::vector<TensorInfo> list;
    {
      const CheckpointReader reader(path);
      info = reader.info();
      list = reader.tensors();
      for (const TensorInfo& tensor : list) {
        std::vector<float>& values = tensors[tensor.name];
        values.resize(static_cast<std::size_t>(num_elements(tensor.global_shape)));
        reader.read(tensor.name, tensor.global_shape, ScalarType::fp32, values.data());
      }
    }
    change(tensors, info.state);
    std::vector<TensorBlock> blocks;
    for (const TensorInfo& tensor : list)
      blocks.push_back(whole_tensor(tensor.name, ScalarType::fp32, tensor.global_shape, tensors[tensor.name].data()));
    save_checkpoint(run / "checkpoints", info, blocks);
  });
}

}  // namespace espalier::test
