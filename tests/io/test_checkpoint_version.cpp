// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of version 1, in which Q, K and V were one tensor.
#include "io/hash.hpp"
#include "tests/io/checkpoint_support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr Index channels = 4;
const std::string joined = "weights/h.0.attention.qkv.weight", query = "weights/h.0.attention.query.weight",
                  key = "weights/h.0.attention.key.weight", value = "weights/h.0.attention.value.weight";

void write_version(const Path& path, int version) {
  std::string text = read_file(path / "manifest.json", ExitCode::checkpoint);
  const std::string of_today = "\"format_version\": 2";
  text.replace(text.find(of_today), of_today.size(), "\"format_version\": " + std::to_string(version));
  const std::string key = "\"manifest_xxh3_128\": \"";
  const std::size_t checksum = text.find(key) + key.size();
  text.replace(checksum, 32, std::string(32, '0'));
  text.replace(checksum, 32, xxh3_128(text.data(), text.size()));
  write_file_atomically(path / "manifest.json", text);
}

// (3, C, C), as two tensor ranks wrote it: each has half of the rows of each of Q, K and V.
Path save_qkv(const Path& directory, int version) {
  std::vector<float> rows(3 * channels / 2 * channels);
  std::vector<std::vector<float>> parts;
  for (Index rank = 0; rank < 2; ++rank) {
    for (Index i = 0; i < 3; ++i)
      for (Index r = 0; r < channels / 2; ++r)
        for (Index c = 0; c < channels; ++c)
          rows[static_cast<std::size_t>((i * channels / 2 + r) * channels + c)] =
              static_cast<float>((i * channels + rank * channels / 2 + r) * channels + c);
    parts.push_back(rows);
  }
  std::vector<TensorBlock> blocks;
  for (Index rank = 0; rank < 2; ++rank)
    blocks.push_back({joined,
                      ScalarType::fp32,
                      {3, channels, channels},
                      {0, rank * channels / 2, 0},
                      {3, channels / 2, channels},
                      parts[static_cast<std::size_t>(rank)].data()});
  const float bias = 1;
  blocks.push_back(whole_tensor("weights/norm.bias", ScalarType::fp32, {1}, &bias));
  const Path path = save_checkpoint(directory, info_of(1), blocks);
  write_version(path, version);
  return path;
}

std::vector<float> from(float first, Index count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(CheckpointVersion, QueryKeyAndValueOfVersion1AreTensorsOfTheirOwn) {
  const TemporaryDirectory directory;
  const CheckpointReader reader(save_qkv(directory / "c", 1));
  EXPECT_FALSE(reader.contains(joined));
  EXPECT_EQ(reader.tensors().size(), 4u);
  constexpr Index size = channels * channels;
  std::vector<float> found(size);
  float first = 0;
  for (const std::string& name : {query, key, value}) {
    ASSERT_EQ(reader.tensor(name).global_shape, (std::vector<Index>{channels, channels})) << name;
    reader.read(name, {channels, channels}, ScalarType::fp32, found.data());
    EXPECT_EQ(found, from(first, size)) << name;
    first += size;
  }
  // Two parts of different tensors at once, from the same stored blocks.
  std::vector<float> row(channels), column(channels);
  const std::vector<WantedBox> boxes = {{value, {3, 0}, {1, channels}, ScalarType::fp32, row.data()},
                                        {key, {0, 1}, {channels, 1}, ScalarType::fp32, column.data()}};
  reader.read(boxes);
  EXPECT_EQ(row, from(2 * size + 3 * channels, channels));
  EXPECT_EQ(column, (std::vector<float>{17, 21, 25, 29}));
  EXPECT_GT(reader.verify(), 0);
  EXPECT_THROW(reader.read(query, {3, channels, channels}, ScalarType::fp32, found.data()), Error);
}

TEST(CheckpointVersion, TheOldNameIsNothingSpecialToday) {
  const TemporaryDirectory directory;
  const CheckpointReader reader(save_qkv(directory / "c", 2));
  EXPECT_TRUE(reader.contains(joined));
  EXPECT_FALSE(reader.contains(query));
}

TEST(CheckpointVersion, Version1HasNoneOfTheNamesOfVersion2) {
  const TemporaryDirectory directory;
  const std::vector<float> rows(channels * channels);
  const std::vector blocks = {whole_tensor(key, ScalarType::fp32, {channels, channels}, rows.data())};
  const Path path = save_checkpoint(directory / "c", info_of(1), blocks);
  CheckpointReader{path};
  write_version(path, 1);
  expect_error(ExitCode::checkpoint, {"the name of another version", key, "a name of version 1"},
               [&] { CheckpointReader{path}; });
}

TEST(CheckpointVersion, OthersAreRefused) {
  const TemporaryDirectory directory;
  const Path older = save_qkv(directory / "older", 0);
  expect_error(ExitCode::checkpoint, {"another format", "version 0", "version 1 to 2"},
               [&] { CheckpointReader{older}; });
  const Path newer = save_qkv(directory / "newer", 3);
  expect_error(ExitCode::checkpoint,
               {"newer format", "version 3", "version 2 at most", "the version of Espalier that wrote it"},
               [&] { CheckpointReader{newer}; });
}

}  // namespace
