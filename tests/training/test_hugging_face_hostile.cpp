// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Hugging Face directories that were damaged or forged. What is read of one are the bytes that its files describe, or
// it is refused with an error that names it.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <optional>

#include "io/checkpoint/block_copy.hpp"
#include "tests/support/memory_limit.hpp"
#include "tests/training/hugging_face_damage.hpp"

namespace espalier::test {
namespace {

constexpr rlim_t max_memory = rlim_t{64} << 20;  // more than the process has; the directories have some 100 KB

std::vector<double> as_doubles(ScalarType type, const char* bytes, Index size) {
  std::vector<double> values(static_cast<std::size_t>(size));
  if (size > 0)
    copy_overlap({{0}, {size}}, type, bytes, {{0}, {size}}, ScalarType::fp64, values.data());
  return values;
}

// NaN is equal to NaN.
bool are_equal(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

// What the headers say, read without the reader. Each byte of the data belongs to one tensor.
class Described {
 public:
  explicit Described(Path directory) : directory_(std::move(directory)) {}

  std::vector<double> values(const std::string& name, const SafetensorsTensor& tensor) {
    const ShardText& shard = shard_of(tensor.file);
    const nlohmann::json entry = nlohmann::json::parse(shard.header).at(name);
    const auto begin = entry.at("data_offsets").at(0).get<Index>(), end = entry.at("data_offsets").at(1).get<Index>();
    EXPECT_TRUE(0 <= begin && begin <= end && end <= static_cast<Index>(shard.data.size()));
    EXPECT_EQ(entry.at("shape").get<std::vector<Index>>(), tensor.shape);
    EXPECT_EQ(entry.at("dtype"), tensor.dtype);
    used_[tensor.file] += end - begin;
    if (!tensor.type)
      return {};
    const auto bytes = static_cast<Index>(size_of(*tensor.type));
    EXPECT_EQ(num_elements(tensor.shape) * bytes, end - begin);
    return as_doubles(*tensor.type, shard.data.data() + begin, (end - begin) / bytes);
  }

  void expect_all_used() {
    for (const auto& [file, bytes] : used_)
      EXPECT_EQ(bytes, static_cast<Index>(shard_of(file).data.size())) << file;
  }

 private:
  const ShardText& shard_of(const std::string& file) {
    if (!shards_.contains(file)) {
      EXPECT_EQ(Path(file).filename(), file);
      shards_[file] = read_shard(directory_ / file);
    }
    return shards_.at(file);
  }

  Path directory_;
  std::map<std::string, ShardText> shards_;
  std::map<std::string, Index> used_;
};

using Tensors = std::map<std::string, std::vector<double>>;

// All that the reader has; of tensors without an element there is nothing to read.
Tensors read_tensors(const SafetensorsReader& reader) {
  Tensors tensors;
  for (const auto& [name, tensor] : reader.tensors()) {
    if (!tensor.type || tensor.shape.empty() || std::ranges::count(tensor.shape, 0) > 0)
      continue;
    std::vector<double>& values = tensors[name];
    values.resize(static_cast<std::size_t>(num_elements(tensor.shape)));
    reader.read(name, std::vector<Index>(tensor.shape.size(), 0), tensor.shape, ScalarType::fp64, values.data());
  }
  return tensors;
}

std::vector<double> read_parameter(const HuggingFaceWeights& weights, const HuggingFaceParameter& parameter) {
  std::vector<double> values(static_cast<std::size_t>(num_elements(parameter.shape)));
  weights.read(parameter, std::vector<Index>(parameter.shape.size(), 0), parameter.shape, ScalarType::fp64,
               values.data());
  return values;
}

// The part of a tensor that a parameter is, element by element.
std::vector<double> part_of(const std::vector<double>& tensor, const HuggingFaceParameter& parameter) {
  const HuggingFacePart& part = parameter.part;
  const Index columns = num_elements({parameter.shape.begin() + 1, parameter.shape.end()});
  std::vector<double> values;
  for (Index row = 0; row < parameter.shape.front(); ++row)
    for (Index column = 0; column < columns; ++column) {
      const Index at =
          part.transposed ? column * part.shape.back() + part.first + row : (part.first + row) * columns + column;
      values.push_back(tensor.at(static_cast<std::size_t>(at)));
    }
  return values;
}

// The error that `read` ends with, within bounds of memory and time; none: it ends without one.
template <class Read>
std::optional<Error> error_of(const Read& read) {
  const auto begin = std::chrono::steady_clock::now();
  std::optional<Error> error;
  try {
    const MemoryLimit limit(max_memory);
    read();
  } catch (const Error& caught) {
    error = caught;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  return error;
}

void expect_clear(const Error& error, const Path& directory) {
  const std::string text = error.what();
  EXPECT_EQ(error.code(), ExitCode::data) << text;
  EXPECT_NE(text.find(directory.string()), std::string::npos) << text;
  EXPECT_LT(text.size(), 10000U) << text;
  EXPECT_FALSE(std::ranges::any_of(text, [](unsigned char c) { return c < ' ' && c != '\n'; })) << text;
  EXPECT_FALSE(error.report().got.empty() || error.report().wanted.empty() || error.report().todo.empty()) << text;
}

struct Counts {
  long read = 0;     // of cases in which all tensors of the files were read
  long used = 0;     // ... and all parameters of config.json
  long refused = 0;  // the files, or what config.json makes of them
};

void try_directory(const Path& directory, Counts& counts) {
  std::optional<SafetensorsReader> reader;
  Tensors found;
  const auto of_files = error_of([&] { found = read_tensors(reader.emplace(directory)); });
  if (of_files) {
    expect_clear(*of_files, directory);
  } else {
    ++counts.read;
    Described described(directory);
    for (const auto& [name, tensor] : reader->tensors()) {
      const std::vector<double> wanted = described.values(name, tensor);
      EXPECT_TRUE(!found.contains(name) || are_equal(found.at(name), wanted)) << name;
    }
    described.expect_all_used();
  }
  std::optional<HuggingFaceWeights> weights;
  const auto of_model = error_of([&] { weights.emplace(directory).require_tied_head(); });
  if (of_model) {
    ++counts.refused;
    expect_clear(*of_model, directory);
    return;
  }
  ++counts.used;
  EXPECT_FALSE(of_files) << of_files->what();
  for (const HuggingFaceParameter& parameter : weights->parameters()) {
    std::vector<double> values;
    EXPECT_FALSE(error_of([&] { values = read_parameter(*weights, parameter); }));
    EXPECT_TRUE(are_equal(values, part_of(found.at(parameter.part.tensor), parameter))) << parameter.name;
  }
}

// The same number makes the same case.
void try_case(long number, const Path& base, const Path& directory, Counts& counts) {
  Random random(static_cast<std::uint64_t>(number));
  std::filesystem::remove_all(directory);
  std::filesystem::copy(base, directory);
  const std::string damage = HuggingFaceDamage(directory, base, random).apply();
  SCOPED_TRACE(fmt::format("case {}: {:.300}", number, damage));
  try {
    try_directory(directory, counts);
  } catch (const std::exception& error) {
    ADD_FAILURE() << "no espalier::Error: " << error.what();
  }
}

void write_base(const std::string& name, const Path& directory) {
  write_model(directory, transformers_references().at(name), ScalarType::fp32);
  const auto bytes = static_cast<Index>(std::filesystem::file_size(directory / safetensors_name));
  std::filesystem::remove(directory / safetensors_name);
  write_model(directory, transformers_references().at(name), ScalarType::fp32, {.shard_bytes = bytes * 6 / 10});
  ASSERT_EQ(shards_in(directory).size(), 2U);
}

void try_cases(long first, long last) {
  const TemporaryDirectory folder;
  const std::vector<std::string> names = {"gpt2", "llama"};
  for (const std::string& name : names)
    write_base(name, folder / name);
  std::filesystem::copy(shards_in(folder / names.front()).front(), folder / "secret.safetensors");
  Counts counts;
  for (long number = first; number <= last && !testing::Test::HasFailure(); ++number)
    try_case(number, folder / names[static_cast<std::size_t>(number) % names.size()], folder / "case", counts);
  const long cases = last - first + 1;
  EXPECT_GT(counts.read, cases / 20);
  EXPECT_GT(counts.used, cases / 50);
  EXPECT_GT(counts.refused, cases / 2);
  std::printf("%ld cases: %ld files read, %ld models read, %ld refused\n", cases, counts.read, counts.used,
              counts.refused);
}

TEST(HuggingFaceHostile, TheDirectoriesAreReadBeforeTheyAreDamaged) {
  for (const char* const name : {"gpt2", "llama"}) {
    const TemporaryDirectory folder;
    write_base(name, folder / "model");
    Counts counts;
    try_directory(folder / "model", counts);
    EXPECT_EQ(counts.used, 1);
  }
}

TEST(HuggingFaceHostile, SomeDirectories) { try_cases(1, 500); }

TEST(HuggingFaceHostileLong, TenThousandDirectories) { try_cases(1, 10000); }

}  // namespace
}  // namespace espalier::test
