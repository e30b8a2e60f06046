// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "io/pack/input_files.hpp"
#include "io/tokens/megatron_writer.hpp"
#include "io/tokens/token_loader.hpp"
#include "tests/io/megatron_blend.hpp"
#include "tests/io/one_set.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr Index length = 5;

class BlendedLoaderTest : public ::testing::Test {
 protected:
  BlendedLoaderTest() {
    write("a", 0, 36);     // 7 windows
    write("b", 1000, 61);  // 12
    write("c", 2000, 16);  // 3
  }
  void write(const std::string& name, int first, int count) {
    std::vector<TokenId> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    TokenFileWriter writer(directory_ / name, "", 3000);
    writer.append(tokens);
    writer.finish();
  }
  LoaderOptions options(Index micro, Index global, int rank = 0, int size = 1, std::uint64_t seed = 5) const {
    return {.micro_batch_size = micro,
            .sequence_length = length,
            .global_batch_size = global,
            .rank = rank,
            .size = size,
            .seed = seed};
  }
  SampleIndex set(const std::vector<std::string>& names) const {
    std::vector<TokenFile> files;
    for (const std::string& name : names)
      files.emplace_back(directory_ / name);
    return {whole_files(std::move(files)), {.sequence_length = length}};
  }
  // Three sets, the second of two files.
  TokenLoader loader(const LoaderOptions& options, std::vector<double> weights) const {
    std::vector<SampleIndex> sets;
    sets.push_back(set({"a"}));
    sets.push_back(set({"b", "c"}));
    sets.push_back(set({"c"}));
    return {std::move(sets), Blend(std::move(weights)), options};
  }
  TemporaryDirectory directory_;
};

// First tokens of the samples from `position` on, by one replica.
std::vector<TokenId> first_tokens(TokenLoader& loader, Index position, Index samples) {
  std::vector<TokenId> tokens;
  loader.seek(position);
  while (static_cast<Index>(tokens.size()) < samples)
    for (const Batch& batch : loader.next_step())
      for (Index row = 0; row < batch.batch_size; ++row)
        tokens.push_back(batch.inputs[static_cast<std::size_t>(row * length)]);
  return tokens;
}

}  // namespace

TEST_F(BlendedLoaderTest, each_epoch_of_a_set_has_each_of_its_windows_once) {
  const std::vector<double> weights = {0.5, 0.2, 0.3};
  TokenLoader ours = loader(options(1, 1), weights);
  for (std::size_t set = 0; set < 3; ++set)
    EXPECT_EQ(ours.sets().at(set).num_samples(), (std::array{7, 15, 3}).at(set));
  const Blend blend(weights);
  std::vector<std::vector<TokenId>> drawn(3);
  const Index samples = 150;  // 75, 30, 45
  const std::vector<TokenId> tokens = first_tokens(ours, 0, samples);
  for (Index sample = 0; sample < samples; ++sample)
    drawn[blend.at(sample).set].push_back(tokens[static_cast<std::size_t>(sample)]);
  const std::vector<std::vector<TokenId>> windows = {
      {0, 5, 10, 15, 20, 25, 30},
      {1000, 1005, 1010, 1015, 1020, 1025, 1030, 1035, 1040, 1045, 1050, 1055, 2000, 2005, 2010},
      {2000, 2005, 2010}};
  for (std::size_t set = 0; set < 3; ++set) {
    const std::size_t n = windows[set].size();
    std::set<std::vector<TokenId>> orders;
    for (std::size_t begin = 0; begin + n <= drawn[set].size(); begin += n) {
      std::vector<TokenId> epoch(drawn[set].begin() + static_cast<Index>(begin),
                                 drawn[set].begin() + static_cast<Index>(begin + n));
      orders.insert(epoch);
      std::sort(epoch.begin(), epoch.end());
      EXPECT_EQ(epoch, windows[set]) << "set " << set << ", draws from " << begin;
    }
    EXPECT_GT(orders.size(), 1u) << "each epoch is shuffled anew";
  }
}

TEST_F(BlendedLoaderTest, has_the_same_order_for_any_number_of_ranks_and_from_any_step) {
  const std::vector<double> weights = {0.55, 0.25, 0.2};
  TokenLoader whole = loader(options(24, 24), weights);
  const std::vector<TokenId> wanted = first_tokens(whole, 0, 480);
  for (const int size : {1, 2, 3, 4, 6, 8})
    for (const Index position : {Index{456}, Index{0}, Index{24}, Index{240}}) {
      std::vector<TokenId> found;
      for (int rank = 0; rank < size; ++rank) {
        TokenLoader ours = loader(options(1, 24, rank, size), weights);
        const std::vector<TokenId> part = first_tokens(ours, position, 24 / size);
        found.insert(found.end(), part.begin(), part.end());
      }
      EXPECT_EQ(found, std::vector<TokenId>(wanted.begin() + position, wanted.begin() + position + 24))
          << size << " ranks, position " << position;
    }
}

TEST_F(BlendedLoaderTest, one_set_has_the_order_of_files_without_weights) {
  std::vector<SampleIndex> sets;
  sets.push_back(set({"a", "b"}));
  TokenLoader blended(std::move(sets), Blend({1.0}), options(1, 1));
  std::vector<TokenFile> files;
  files.emplace_back(directory_ / "a");
  files.emplace_back(directory_ / "b");
  TokenLoader plain = one_set_loader(std::move(files), options(1, 1));
  EXPECT_EQ(first_tokens(blended, 0, 60), first_tokens(plain, 0, 60));
}

TEST_F(BlendedLoaderTest, samples_of_a_far_step_are_found_and_placed) {
  const TokenLoader ours = loader(options(1, 1), {0.123456, 0.5, 0.376544});
  for (const Index sample : {Index{100'000'000}, Index{1} << 40}) {
    const Batch batch = ours.batch(sample, 0);
    const SampleIndex::Location location = ours.locate(sample);
    std::vector<TokenId> token(1);
    location.file->read(location.first_token, token);
    EXPECT_EQ(batch.inputs[0], token[0]);
  }
}

// Two Megatron sets of documents whose tokens are their numbers.
TEST_F(BlendedLoaderTest, reads_the_documents_that_megatron_reads) {
  std::vector<SampleIndex> sets;
  const std::vector<std::vector<int>> sizes = {megatron_sizes_0, megatron_sizes_1};
  for (std::size_t set = 0; set < sizes.size(); ++set) {
    const std::string name = "megatron" + std::to_string(set);
    MegatronWriter writer({directory_ / (name + ".bin"), directory_ / (name + ".idx")}, 2);
    for (std::size_t document = 0; document < sizes[set].size(); ++document) {
      writer.append(std::vector<TokenId>(static_cast<std::size_t>(sizes[set][document]),
                                         static_cast<TokenId>(100 * set + document)));
      writer.end_document();
    }
    writer.finish();
    std::vector<TokenFile> files;
    files.emplace_back(directory_ / name);
    sets.emplace_back(whole_files(std::move(files)), SampleOptions{.sequence_length = length});
  }
  const TokenLoader ours(std::move(sets), Blend({0.5, 0.5}), options(30, 30));
  const Batch batch = ours.batch(0, 0);
  std::vector<std::set<int>> read(2);
  for (const std::vector<TokenId>* tokens : {&batch.inputs, &batch.targets})
    for (const TokenId token : *tokens)
      read[static_cast<std::size_t>(token / 100)].insert(token % 100);
  EXPECT_EQ(std::vector<int>(read[0].begin(), read[0].end()), megatron_read_0);
  EXPECT_EQ(std::vector<int>(read[1].begin(), read[1].end()), megatron_read_1);
}

TEST_F(BlendedLoaderTest, an_entry_may_be_a_pattern) {
  write_bytes(directory_ / "pair-1.bin", "");
  write_bytes(directory_ / "pair-1.idx", "");
  write_bytes(directory_ / "pair-2.bin", "");
  const std::string folder = directory_.path().string() + "/";
  using Names = std::vector<std::string>;
  EXPECT_EQ(expand_token_files(folder + "[ab]"), (Names{folder + "a", folder + "b"}));
  EXPECT_EQ(expand_token_files(folder + "{c,a}"), (Names{folder + "a", folder + "c"}));
  EXPECT_EQ(expand_token_files(folder + "pair*"), (Names{folder + "pair-1.bin", folder + "pair-2.bin"}));
  EXPECT_EQ(expand_token_files(folder + "absent"), Names{folder + "absent"}) << "an error of who opens it";
  expect_error(ExitCode::data, {"no token file matches", folder + "*.tokens"},
               [&] { expand_token_files(folder + "*.tokens"); });
}
