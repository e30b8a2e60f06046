// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A run resumes from what an older version saved.
#include "tests/training/rewrite_checkpoint.hpp"

namespace espalier::test {
namespace {

// Writes the newest checkpoint again as version 1 had it: Q, K and V are one tensor.
void rewrite_as_version_1(const Path& run) {
  on_root([&] {
    Path path = find_checkpoints(run / "checkpoints").at(0).path;
    std::map<std::string, std::vector<float>> values;
    std::map<std::string, std::vector<Index>> shapes;
    CheckpointInfo info;
    {
      const CheckpointReader reader(path);
      info = reader.info();
      for (const char* const part : {"query", "key", "value", ""})
        for (const TensorInfo& tensor : reader.tensors()) {
          const std::size_t at = *part ? tensor.name.find(part) : std::string::npos;
          const bool is_joined =
              tensor.name.find("attention.") != std::string::npos && tensor.name.find(".proj.") == std::string::npos;
          if (*part ? at == std::string::npos : is_joined)
            continue;
          std::string name = tensor.name;
          std::vector<Index> shape = tensor.global_shape;
          if (*part) {
            name.replace(at, std::string(part).size(), "qkv");
            shape.insert(shape.begin(), 3);
          }
          std::vector<float> one(static_cast<std::size_t>(num_elements(tensor.global_shape)));
          reader.read(tensor.name, tensor.global_shape, ScalarType::fp32, one.data());
          values[name].insert(values[name].end(), one.begin(), one.end());
          shapes[name] = shape;
        }
    }
    std::vector<TensorBlock> blocks;
    for (const auto& [name, tensor] : values)
      blocks.push_back(whole_tensor(name, ScalarType::fp32, shapes[name], tensor.data()));
    path = save_checkpoint(run / "checkpoints", info, blocks);
    Manifest manifest = parse_manifest(read_file(path / "manifest.json", ExitCode::checkpoint), path);
    manifest.version = 1;
    write_file_atomically(path / "manifest.json", to_text(manifest));
  });
}

TEST(Resume, ACheckpointOfVersion1GoesOnWithTheSameBits) {
  const SharedFolder folder("version_1");
  const RunConfig whole = config_in(folder, "whole"), run = config_in(folder, "run");
  start_run(whole, {});
  start_run(run, stop_after(4));
  rewrite_as_version_1(folder / "run");
  EXPECT_TRUE(start_run(run, {}).says("have the loss that was stored"));
  on_root([&] { EXPECT_EQ(losses(run), losses(whole)); });
}

}  // namespace
}  // namespace espalier::test
