// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints that somebody made to do harm, with manifests whose checksums are right.
#include <hdf5.h>
#include <sys/stat.h>

#include <functional>
#include <random>

#include "io/hash.hpp"
#include "tests/io/checkpoint_support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr hsize_t extent = 24;
const std::string dataset = "w";

class CheckpointHostile : public ::testing::Test {
 protected:
  CheckpointHostile() : path_(directory_ / "step-00000001") {
    std::filesystem::create_directory(path_);
    write_bytes(directory_ / "secret", std::string(96, 's'));
  }

  // Lets `make` fill rank-00000.h5, and publishes it with a manifest that fits as well as can be.
  void make_file(const std::function<void(hid_t)>& make) {
    offset_ = HADDR_UNDEF;
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    const hid_t file = H5Fcreate(file_path().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
    make(file);
    H5Fclose(file);
    H5Pclose(access);
  }

  void write_dataset(hid_t file, const char* name, hid_t type, hid_t creation, const std::vector<hsize_t>& extents) {
    const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
    const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    const std::vector<double> zeros(64);
    if (H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()) >= 0)
      offset_ = H5Dget_offset(set);
    H5Dclose(set);
    H5Sclose(space);
  }

  Manifest manifest() const {
    Manifest manifest;
    manifest.info = info_of(1);
    const auto bytes = static_cast<Index>(std::filesystem::file_size(file_path()));
    const DatasetExtent extent{offset_ == HADDR_UNDEF ? 0 : static_cast<Index>(offset_), 96};
    manifest.files = {{"rank-00000.h5", bytes, metadata_hash(InputFile(file_path(), ExitCode::checkpoint), {extent})}};
    const std::vector<char> zeros(96);
    manifest.blocks = {
        {"w", ScalarType::fp32, {24}, {0}, {24}, "rank-00000.h5", dataset, extent, xxh3_128(zeros.data(), 96)}};
    return manifest;
  }

  void expect_refused(const std::vector<std::string>& parts) { expect_refused(manifest(), parts); }
  void expect_refused(const Manifest& manifest, const std::vector<std::string>& parts) {
    write_bytes(path_ / "manifest.json", to_text(manifest));
    std::vector<float> found(24, 7);
    expect_error(ExitCode::checkpoint, parts,
                 [&] { CheckpointReader(path_).read("w", {24}, ScalarType::fp32, found.data()); });
    EXPECT_EQ(found, std::vector<float>(24, 7));  // not a byte of another file was delivered
  }

  // Whatever HDF5 would make of the file: its own bytes at the extent of the manifest are read, or it is refused.
  void expect_own_bytes_or_refused(const char* what) {
    const Manifest lie = manifest();
    write_bytes(path_ / "manifest.json", to_text(lie));
    const std::string own = read_bytes(file_path()).substr(static_cast<std::size_t>(lie.blocks[0].extent.offset), 96);
    std::string found(96, 'x');
    try {
      const CheckpointReader reader(path_);
      reader.verify();
      reader.read("w", {24}, ScalarType::fp32, found.data());
      EXPECT_EQ(found, own) << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint) << what;
      EXPECT_NE(own, std::string(96, '\0')) << what << ": " << error.what();
    }
  }

  Path file_path() const { return path_ / "rank-00000.h5"; }

  TemporaryDirectory directory_;
  Path path_;
  haddr_t offset_ = HADDR_UNDEF;
};

}  // namespace

TEST_F(CheckpointHostile, the_plain_case_loads) {
  make_file([&](hid_t file) { write_dataset(file, "w", H5T_IEEE_F32LE, H5P_DEFAULT, {extent}); });
  write_bytes(path_ / "manifest.json", to_text(manifest()));
  std::vector<float> found(24, 7);
  CheckpointReader(path_).read("w", {24}, ScalarType::fp32, found.data());
  EXPECT_EQ(found, std::vector<float>(24, 0));
}

// The manifest says which bytes of a shard are data, and its checksums that they are the right ones. What HDF5 would
// follow from there, to another extent or another file, is never looked at.
TEST_F(CheckpointHostile, what_a_shard_says_to_hdf5_leads_nowhere) {
  const auto external = [&](hid_t file) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(creation, (directory_ / "secret").c_str(), 0, 96);
    const hid_t space = H5Screate_simple(1, &extent, nullptr);
    H5Dclose(H5Dcreate2(file, "w", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
    H5Sclose(space);
    H5Pclose(creation);
  };
  const auto soft_link = [&](hid_t file) {
    write_dataset(file, "real", H5T_IEEE_F32LE, H5P_DEFAULT, {extent});
    H5Lcreate_soft("/real", file, "w", H5P_DEFAULT, H5P_DEFAULT);
  };
  const auto external_link = [](hid_t file) {
    H5Lcreate_external("other.h5", "/w", file, "w", H5P_DEFAULT, H5P_DEFAULT);
  };
  const auto cycle = [](hid_t file) {
    H5Lcreate_soft("/w", file, "w", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(file, "/", file, "loop", H5P_DEFAULT, H5P_DEFAULT);
  };
  const auto virtual_dataset = [](hid_t file) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    const hid_t space = H5Screate_simple(1, &extent, nullptr);
    H5Pset_virtual(creation, space, "other.h5", "/w", space);
    H5Dclose(H5Dcreate2(file, "w", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
    H5Sclose(space);
    H5Pclose(creation);
  };
  const auto filtered = [&](hid_t file) {  // by a plug-in: its code would have to be loaded
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 1, &extent);
    H5Pset_filter(creation, 32004, H5Z_FLAG_OPTIONAL, 0, nullptr);
    write_dataset(file, "w", H5T_IEEE_F32LE, creation, {extent});
    H5Pclose(creation);
  };
  const auto compact = [&](hid_t file) {
    const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(creation, H5D_COMPACT);
    write_dataset(file, "w", H5T_IEEE_F32LE, creation, {extent});
    H5Pclose(creation);
  };
  const auto big_endian = [&](hid_t file) { write_dataset(file, "w", H5T_IEEE_F32BE, H5P_DEFAULT, {extent}); };
  const auto never_stored = [](hid_t file) {
    const hsize_t absurd = hsize_t{1} << 40;
    const hid_t space = H5Screate_simple(1, &absurd, nullptr);
    H5Dclose(H5Dcreate2(file, "w", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
  };
  const std::vector<std::pair<const char*, std::function<void(hid_t)>>> files = {
      {"external storage", external},      {"a soft link", soft_link},
      {"an external link", external_link}, {"a cycle", cycle},
      {"a virtual one", virtual_dataset},  {"a filter", filtered},
      {"a compact one", compact},          {"another type", big_endian},
      {"never stored", never_stored}};
  for (const auto& [what, make] : files) {
    make_file(make);
    expect_own_bytes_or_refused(what);
  }
}

// Files that were forged to harm HDF5 harm nobody: it opens none.
TEST_F(CheckpointHostile, a_shard_is_read_without_hdf5) {
  make_file([&](hid_t file) { write_dataset(file, "w", H5T_IEEE_F32LE, H5P_DEFAULT, {extent}); });
  const std::string good = read_bytes(file_path());
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    std::string forged = good;
    for (int i = 0; i < (trial == 0 ? 100000 : 1 + trial % 8); ++i) {
      const std::size_t at = std::uniform_int_distribution<std::size_t>(0, good.size() - 1)(random);
      if (at < offset_ || at >= offset_ + 96)
        forged[at] = static_cast<char>(random());
    }
    write_bytes(file_path(), forged);
    write_bytes(path_ / "manifest.json", to_text(manifest()));
    const CheckpointReader reader(path_);
    EXPECT_EQ(reader.verify(), static_cast<Index>(forged.size()));
    std::vector<float> found(24, 7);
    reader.read("w", {24}, ScalarType::fp32, found.data());
    EXPECT_EQ(found, std::vector<float>(24, 0));
  }
}

// What lies beside the files of the manifest is never opened, the index for people included.
TEST_F(CheckpointHostile, an_index_that_leads_elsewhere) {
  make_file([&](hid_t file) { write_dataset(file, "w", H5T_IEEE_F32LE, H5P_DEFAULT, {extent}); });
  Manifest with_index = manifest();
  with_index.index = {"../secret", 96, std::string(32, '0')};
  expect_refused(with_index, {"impossible file", "../secret"});
  with_index.index->name = "index.h5";
  std::filesystem::create_symlink(directory_ / "secret", path_ / "index.h5");
  write_bytes(path_ / "manifest.json", to_text(with_index));
  std::vector<float> found(24, 7);
  CheckpointReader(path_).read("w", {24}, ScalarType::fp32, found.data());
  EXPECT_EQ(found, std::vector<float>(24, 0));
  expect_error(ExitCode::checkpoint, {"index.h5", "not a regular file"}, [&] { CheckpointReader(path_).verify(); });
}

TEST_F(CheckpointHostile, manifests_that_lie) {
  make_file([&](hid_t file) { write_dataset(file, "w", H5T_IEEE_F32LE, H5P_DEFAULT, {extent}); });
  for (const char* const name : {"../secret", "/etc/passwd", "rank-00000.h5/../x.h5", "rank-.h5", "secret"}) {
    Manifest bad = manifest();
    bad.files[0].name = bad.blocks[0].file = name;
    expect_refused(bad, {"impossible file", name});
  }
  const auto with_block = [&](const std::function<void(StoredBlock&)>& change, const std::string& part) {
    Manifest bad = manifest();
    change(bad.blocks[0]);
    expect_refused(bad, {part});
  };
  with_block([](StoredBlock& b) { b.count = {25}; }, "outside its tensor");
  with_block([](StoredBlock& b) { b.start = {-1}; }, "outside its tensor");
  with_block([](StoredBlock& b) { b.start = {0x7fffffffffffffff}; }, "outside its tensor");
  with_block([](StoredBlock& b) { b.start = {0, 0}; }, "disagree");
  with_block([](StoredBlock& b) { b.extent.offset = 1 << 30; }, "outside its file");
  with_block([](StoredBlock& b) { b.extent.bytes = 92; }, "outside its file");
  with_block([](StoredBlock& b) { b.file = "rank-00001.h5"; }, "files of its list");
  with_block([](StoredBlock& b) { b.dataset = "/w"; }, "impossible name");
  with_block(
      [](StoredBlock& b) {
        b.global_shape = b.count = {Index{1} << 40, Index{1} << 40};
        b.start = {0, 0};
      },
      "absurd size");
  Manifest twice = manifest();
  twice.files.push_back(twice.files[0]);
  expect_refused(twice, {"impossible file"});
  for (const char* const text : {"", "{", "[]", "{\"manifest_xxh3_128\": \"0\"}", "null"}) {
    write_bytes(path_ / "manifest.json", text);
    expect_error(ExitCode::checkpoint, {"manifest"}, [&] { CheckpointReader reader(path_); });
  }
}

TEST_F(CheckpointHostile, links_in_the_directory) {
  make_file([&](hid_t file) { write_dataset(file, "w", H5T_IEEE_F32LE, H5P_DEFAULT, {extent}); });
  const Manifest good = manifest();
  std::filesystem::rename(file_path(), directory_ / "elsewhere.h5");
  std::filesystem::create_symlink(directory_ / "elsewhere.h5", file_path());
  expect_refused(good, {"rank-00000.h5", "not a regular file"});
  std::filesystem::remove(path_ / "manifest.json");
  std::filesystem::create_symlink(directory_ / "secret", path_ / "manifest.json");
  expect_error(ExitCode::checkpoint, {"manifest.json", "not a regular file"}, [&] { CheckpointReader reader(path_); });
}

TEST_F(CheckpointHostile, what_is_no_file_where_one_should_be) {
  make_file([&](hid_t file) { write_dataset(file, "w", H5T_IEEE_F32LE, H5P_DEFAULT, {extent}); });
  const Manifest good = manifest();
  const std::string text = to_text(good);
  for (const char* const name : {"rank-00000.h5", "manifest.json"}) {
    const Path path = path_ / name;
    const std::string content = name == std::string("manifest.json") ? text : read_bytes(path);
    const auto expect_bad = [&] {
      if (name != std::string("manifest.json"))
        write_bytes(path_ / "manifest.json", text);
      expect_error(ExitCode::checkpoint, {name}, [&] { CheckpointReader(path_).verify(); });
      std::filesystem::remove_all(path);
    };
    std::filesystem::remove(path);
    expect_bad();
    std::filesystem::create_directory(path);
    expect_bad();
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
    expect_bad();
    write_bytes(path, "");
    expect_bad();
    write_bytes(path, content);
  }
  CheckpointReader(path_).verify();
}

// A manifest's claim about the index is compared with the file, and so is what it claims to be read.
TEST_F(CheckpointHostile, an_index_of_another_size) {
  make_file([&](hid_t file) { write_dataset(file, "w", H5T_IEEE_F32LE, H5P_DEFAULT, {extent}); });
  write_bytes(path_ / "index.h5", "index");
  Manifest with_index = manifest();
  with_index.index = {"index.h5", Index{1} << 62, xxh3_128("index", 5)};
  write_bytes(path_ / "manifest.json", to_text(with_index));
  expect_error(ExitCode::checkpoint, {"index.h5", "damaged", "5 bytes"}, [&] { CheckpointReader(path_).verify(); });
}
