// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "core/bfloat16.hpp"
#include "io/checkpoint/safetensors.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

std::vector<float> counting(Index size, float first) {
  std::vector<float> values(static_cast<std::size_t>(size));
  std::iota(values.begin(), values.end(), first);
  return values;
}

void write_three(const Path& directory, Index shard_bytes) {
  SafetensorsWriter writer(
      directory, {{"b", ScalarType::fp32, {2, 3, 4}}, {"a", ScalarType::bf16, {5}}, {"c", ScalarType::fp64, {1}}},
      shard_bytes);
  writer.write(counting(24, 0).data());
  std::vector<bfloat16> halves;
  for (const float value : counting(5, 100))
    halves.emplace_back(value);
  writer.write(halves.data());
  const double pi = 3.141592653589793;
  writer.write(&pi);
  writer.finish();
}

void expect_three(const Path& directory) {
  const SafetensorsReader reader(directory);
  EXPECT_EQ(reader.tensors().size(), 3u);
  EXPECT_EQ(reader.tensor("b").shape, (std::vector<Index>{2, 3, 4}));
  EXPECT_EQ(reader.tensor("a").dtype, "BF16");
  std::vector<float> whole(24), part(4);
  reader.read("b", {0, 0, 0}, {2, 3, 4}, ScalarType::fp32, whole.data());
  EXPECT_EQ(whole, counting(24, 0));
  reader.read("b", {0, 1, 3}, {2, 2, 1}, ScalarType::fp32, part.data());
  EXPECT_EQ(part, (std::vector<float>{7, 11, 19, 23}));
  std::vector<double> halves(3);
  reader.read("a", {2}, {3}, ScalarType::fp64, halves.data());
  EXPECT_EQ(halves, (std::vector<double>{102, 103, 104}));
  double pi = 0;
  reader.read("c", {0}, {1}, ScalarType::fp64, &pi);
  EXPECT_EQ(pi, 3.141592653589793);
}

TEST(Safetensors, OneFileOrSeveral) {
  for (const Index shard_bytes : {Index{1} << 30, Index{96}, Index{1}}) {
    const TemporaryDirectory directory;
    write_three(directory.path(), shard_bytes);
    EXPECT_EQ(std::filesystem::exists(directory / safetensors_name), shard_bytes > 1000);
    EXPECT_EQ(std::filesystem::exists(directory / "model-00001-of-00003.safetensors"), shard_bytes == 1);
    expect_three(directory.path());
  }
}

// What the reference implementation writes: safetensors.numpy.save_file({"t": numpy.arange(6,
// dtype="float32").reshape(2, 3), "mask": numpy.ones(3, dtype="uint8")}, ...).
TEST(Safetensors, AFileOfTheReferenceImplementation) {
  const TemporaryDirectory directory;
  std::string header = R"({"t":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                       R"("mask":{"dtype":"U8","shape":[3],"data_offsets":[24,27]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  bytes += header;
  const std::vector<float> t = counting(6, 0);
  bytes.append(reinterpret_cast<const char*>(t.data()), 24);
  bytes += "\1\1\1";
  write_bytes(directory / safetensors_name, bytes);
  const SafetensorsReader reader(directory.path());
  std::vector<float> found(6);
  reader.read("t", {0, 0}, {2, 3}, ScalarType::fp32, found.data());
  EXPECT_EQ(found, t);
  EXPECT_FALSE(reader.tensor("mask").type.has_value());
  expect_error(ExitCode::data, {"mask (3), U8"},
               [&] { reader.read("mask", {0}, {3}, ScalarType::fp32, found.data()); });
  expect_error(ExitCode::data, {"lack a tensor", "wanted: u"}, [&] { reader.tensor("u"); });
  expect_error(ExitCode::data, {"t (2, 3), F32", "(3, 3)"}, [&] {
    reader.read("t", {0, 0}, {3, 3}, ScalarType::fp32, found.data());
  });
}

std::string file_of(const std::string& header, std::size_t data, std::uint64_t length = 0) {
  length = length ? length : header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  return bytes + header + std::string(data, 'x');
}

TEST(Safetensors, HeadersThatLieAreRefused) {
  const std::string good = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return file_of(text.replace(text.find(from), from.size(), to), 8);
  };
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "0 bytes"},
      {"short", "5 bytes"},
      {file_of(good, 8, std::uint64_t{1} << 62), "safetensors format"},
      {file_of(good, 8, 2000), "safetensors format"},
      {file_of(good, 7), "8 by its header"},
      {file_of(good, 9), "became shorter or longer"},
      {file_of("[1]", 0), "not an object"},
      {file_of(std::string(300, '['), 0), "header"},
      {with("\"F32\"", "\"F33\""), "dtype"},
      {with("[2]", "[3]"), "\"shape\" is [3], wanted a tensor of 8 bytes"},
      {with("[2]", "[1]"), "t: \"data_offsets\" is [0,8], wanted 4 bytes"},
      {with("[2]", "[-2]"), "shape"},
      {with("[2]", "[1099511627776, 1099511627776, 1099511627776]"), "a tensor of 8 bytes"},
      {with("[0,8]", "[0,9]"), "data_offsets"},
      {with("[2],\"data_offsets\":[0,8]", "[4294967296],\"data_offsets\":[0,17179869184]"),
       "17179869184 by its header"},
      {with("[0,8]", "[8,0]"), "data_offsets"},
      {with("[0,8]", "[0]"), "data_offsets"},
      {with("[0,8]", "[-8,0]"), "data_offsets"},
      {file_of(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), "leave a gap"},
      {file_of(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"u":{"dtype":"F32","shape":[1],)"
               R"("data_offsets":[4,8]}})",
               8),
       "byte 8, where t ends"},
      // The place of one tensor is wrong, and no other is blamed.
      {file_of(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[1000000000,1000000004]},)"
               R"("u":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
               8),
       "t ends at byte 1000000004"},
      {file_of(R"({"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"t":{"dtype":"F32","shape":[2],)"
               R"("data_offsets":[0,8]}})",
               8),
       "header"}};
  for (const auto& [bytes, words] : bad) {
    const TemporaryDirectory directory;
    write_bytes(directory / safetensors_name, bytes);
    expect_error(ExitCode::data, {safetensors_name, words}, [&] { SafetensorsReader{directory.path()}; });
  }
}

TEST(Safetensors, EmptyTensorsAndAFileBesideAnIndex) {
  const TemporaryDirectory directory;
  write_three(directory.path(), 1);
  write_bytes(
      directory / safetensors_name,
      file_of(R"({"t":{"dtype":"F32","shape":[1000,0],"data_offsets":[0,0]},"u":{"dtype":"F32","shape":[0,1000],)"
              R"("data_offsets":[0,0]}})",
              0));
  const SafetensorsReader reader(directory.path());  // as transformers: the one file
  EXPECT_EQ(reader.tensors().size(), 2u);
  EXPECT_EQ(reader.tensor("t").shape, (std::vector<Index>{1000, 0}));
}

TEST(Safetensors, AFileThatIsCutLaterIsAnError) {
  const TemporaryDirectory directory;
  write_three(directory.path(), Index{1} << 30);
  const SafetensorsReader reader(directory.path());
  const Path file = directory / safetensors_name;
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 60);
  std::vector<float> whole(24);
  expect_error(ExitCode::data, {safetensors_name}, [&] { reader.read("c", {0}, {1}, ScalarType::fp32, whole.data()); });
}

TEST(Safetensors, IndexesThatLieAreRefused) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {R"({"weight_map":{"b":"../model.safetensors"}})", "elsewhere"},
      {R"({"weight_map":{"b":""}})", "elsewhere"},
      {R"({"weight_map":{"b":"model-00001-of-00003.safetensors\u0000"}})", "elsewhere"},
      {R"({"weight_map":{"b":5}})", "weight_map"},
      {R"({"metadata":{}})", "weight_map"},
      {R"({"weight_map":{"z":"model-00001-of-00003.safetensors"}})", "does not have all its tensors"},
      {R"({"weight_map":{"b":"model-00009-of-00009.safetensors"}})", "says that b lies"}};
  for (const auto& [text, words] : bad) {
    const TemporaryDirectory directory;
    write_three(directory.path(), 1);
    write_bytes(directory / safetensors_index_name, text);
    expect_error(ExitCode::data, {words}, [&] { SafetensorsReader{directory.path()}; });
  }
}

TEST(Safetensors, ATensorInTwoFilesIsRefused) {
  const TemporaryDirectory directory;
  write_three(directory.path(), 1);
  std::filesystem::copy(directory / "model-00001-of-00003.safetensors", directory / "other.safetensors");
  write_bytes(directory / safetensors_index_name,
              R"({"weight_map":{"b":"model-00001-of-00003.safetensors","a":"other.safetensors"}})");
  expect_error(ExitCode::data, {"other.safetensors", "b, as model-00001-of-00003.safetensors"},
               [&] { SafetensorsReader{directory.path()}; });
}

TEST(Safetensors, DirectoriesWithoutThemAreRefused) {
  const TemporaryDirectory directory;
  expect_error(ExitCode::data, {"no weights", "config.json"}, [&] { SafetensorsReader{directory.path()}; });
  write_bytes(directory / "pytorch_model.bin", "x");
  expect_error(ExitCode::data, {"save_pretrained"}, [&] { SafetensorsReader{directory.path()}; });
}

}  // namespace
