// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// index.h5 as any HDF5 tool meets it: read with the C API, in the library's default settings.
#include <hdf5.h>

#include <cmath>

#include "core/tensor.hpp"
#include "io/checkpoint/block_copy.hpp"
#include "io/checkpoint/checkpoint_index.hpp"
#include "tests/io/checkpoint_support.hpp"

namespace espalier::test {
namespace {

// A whole dataset of index.h5, with its shape.
struct Whole {
  std::vector<hsize_t> shape;
  std::vector<double> values;
};

Whole read_whole(const Path& path, const std::string& name) {
  Whole whole;
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  EXPECT_GE(dataset, 0) << name;
  const hid_t space = H5Dget_space(dataset);
  whole.shape.resize(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, whole.shape.data(), nullptr);
  whole.values.resize(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, whole.values.data()), 0) << name;
  H5Sclose(space);
  H5Dclose(dataset);
  H5Fclose(file);
  return whole;
}

std::string read_state(const Path& path) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(file, "state", H5P_DEFAULT);
  const hid_t type = H5Dget_type(dataset);
  std::string text(H5Tget_size(type), '\0');
  EXPECT_GE(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()), 0);
  H5Tclose(type);
  H5Dclose(dataset);
  H5Fclose(file);
  return text;
}

// A tensor (5, 4, 6) cut into five boxes over three files, element i worth i.
Path save_cut_tensor(const Path& directory) {
  const std::vector<Index> shape{5, 4, 6};
  std::vector<float> whole(120);
  std::iota(whole.begin(), whole.end(), 0.0F);
  const std::vector<std::vector<Box>> cuts{
      {{{0, 0, 0}, {2, 4, 2}}, {{2, 0, 0}, {3, 1, 6}}}, {{{0, 0, 2}, {2, 4, 4}}}, {{{2, 1, 0}, {3, 3, 6}}}};
  const Path partial = begin_checkpoint(directory, 3);
  std::vector<ShardRecord> shards;
  std::vector<StoredBlock> plan;
  for (std::size_t writer = 0; writer < cuts.size(); ++writer) {
    std::vector<std::vector<float>> data;
    std::vector<TensorBlock> blocks;
    for (const Box& box : cuts[writer]) {
      auto& values = data.emplace_back(static_cast<std::size_t>(num_elements(box.count)));
      copy_overlap({{0, 0, 0}, shape}, ScalarType::fp32, whole.data(), box, ScalarType::fp32, values.data());
      blocks.push_back({"weights/100%b", ScalarType::fp32, shape, box.start, box.count, values.data()});
    }
    const ShardSlot slot = own_file(static_cast<int>(writer));
    for (const StoredBlock& block : plan_shard(slot, blocks))
      plan.push_back(block);
    shards.push_back(write_shard(partial, slot, blocks));
  }
  const StoredFile index = write_index(partial, info_of(3), plan);
  return publish_checkpoint(directory, info_of(3), shards, index);
}

TEST(CheckpointIndex, shows_whole_tensors_and_the_state) {
  const TemporaryDirectory directory;
  const Path path = save(directory / "c", 7);
  const Whole weight = read_whole(path / "index.h5", "weights/h.0.weight");
  EXPECT_EQ(weight.shape, (std::vector<hsize_t>{4, 6}));
  const Model model;
  EXPECT_EQ(weight.values, std::vector<double>(model.weight.begin(), model.weight.end()));
  EXPECT_EQ(read_whole(path / "index.h5", "weights/h.0.bias").values, model.bias);
  EXPECT_EQ(read_whole(path / "index.h5", "loss_scale").values, std::vector<double>{1024}) << "one element";
  EXPECT_EQ(nlohmann::json::parse(read_state(path / "index.h5")), info_of(7).state);
}

TEST(CheckpointIndex, puts_blocks_of_several_files_together_wherever_the_directory_lies) {
  const TemporaryDirectory directory;
  const Path path = save_cut_tensor(directory / "c");
  std::filesystem::rename(path, directory / "moved");
  const Whole whole = read_whole(directory / "moved/index.h5", "weights/100%b");
  EXPECT_EQ(whole.shape, (std::vector<hsize_t>{5, 4, 6}));
  for (std::size_t i = 0; i < whole.values.size(); ++i)
    ASSERT_EQ(whole.values[i], static_cast<double>(i));
}

TEST(CheckpointIndex, what_is_missing_is_not_a_number) {
  const TemporaryDirectory directory;
  const Path path = save_cut_tensor(directory / "c");
  std::filesystem::remove(path / "rank-00001.h5");
  const Whole whole = read_whole(path / "index.h5", "weights/100%b");
  for (std::size_t i = 0; i < whole.values.size(); ++i)
    EXPECT_EQ(std::isnan(whole.values[i]), i / 24 < 2 && i % 6 >= 2) << i;
}

TEST(CheckpointIndex, is_the_same_for_the_same_content) {
  const TemporaryDirectory directory;
  EXPECT_EQ(read_bytes(save(directory / "a", 1) / "index.h5"), read_bytes(save(directory / "b", 1) / "index.h5"));
}

// It is for people: verify() vouches for it, the loader does without.
TEST(CheckpointIndex, damage_is_found_by_verify_and_does_not_stop_the_loader) {
  const TemporaryDirectory directory;
  const Path path = save(directory / "c", 1);
  const std::string good = read_bytes(path / "index.h5");
  const auto refused = [&](const std::string& what) {
    EXPECT_TRUE(loads(path, Model()));
    expect_error(ExitCode::checkpoint, {"index.h5", what, "Espalier itself never reads it"},
                 [&] { CheckpointReader(path).verify(); });
  };
  for (std::size_t at = 0; at < good.size(); at += good.size() / 37) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    write_bytes(path / "index.h5", bad);
    refused("damaged");
  }
  write_bytes(path / "index.h5", good.substr(0, 100));
  refused("damaged");
  std::filesystem::remove(path / "index.h5");
  refused("missing");
  std::filesystem::create_symlink("/dev/zero", path / "index.h5");
  refused("not a regular file");
}

}  // namespace
}  // namespace espalier::test
