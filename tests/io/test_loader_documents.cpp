// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What batches say of documents, beside plain loops over all tokens.
#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "io/tokens/megatron_writer.hpp"
#include "io/tokens/token_loader.hpp"
#include "tests/io/one_set.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr TokenId end_of_text = 0;

// Tokens of one file, each with its document, and whether it counts as a target.
struct Corpus {
  std::vector<TokenId> tokens;
  std::vector<int> documents;
  std::vector<std::uint8_t> loss_mask;
};

// Each token occurs once, so a sample is known by its first; but for end_of_text, in `with_ends` the last of each
// document.
Corpus random_corpus(unsigned seed, int num_documents, bool with_ends = false) {
  std::mt19937 random(seed);
  Corpus corpus;
  for (int document = 0; document < num_documents; ++document) {
    const int length = static_cast<int>(random() % 3 == 0 ? 1 : random() % 17) + (with_ends ? 1 : 0);
    for (int i = 0; i < length; ++i) {
      const bool ends = with_ends && i == length - 1;
      corpus.tokens.push_back(ends ? end_of_text : static_cast<TokenId>(corpus.tokens.size()) + 1);
      corpus.documents.push_back(document);
      corpus.loss_mask.push_back(static_cast<std::uint8_t>(random() % 4 != 0));
    }
  }
  return corpus;
}

template <class Writer>
void write_documents(Writer& writer, const Corpus& corpus, int num_documents) {
  for (int document = 0; document < num_documents; ++document) {
    const auto [begin, end] = std::equal_range(corpus.documents.begin(), corpus.documents.end(), document);
    const std::span<const TokenId> tokens(corpus.tokens.data() + (begin - corpus.documents.begin()),
                                          static_cast<std::size_t>(end - begin));
    writer.append(tokens);
    writer.end_document();
  }
  writer.finish();
}

void write_with_mask(const Path& path, const Corpus& corpus) {
  TokenFileWriter writer(path, "", 5000);
  writer.append(corpus.tokens, corpus.loss_mask);
  writer.finish();
}

class LoaderDocumentsTest : public ::testing::Test {
 protected:
  std::vector<TokenSubset> subset(const Path& path, std::optional<TokenId> end = {}) const {
    std::vector<TokenFile> files;
    files.emplace_back(path);
    return whole_files(std::move(files), end);
  }
  TemporaryDirectory directory_;
};

// Every row of `index` against the corpus, of which the row is a stretch.
void expect_rows(const SampleIndex& index, const Corpus& corpus, Index length, bool separate, bool masked) {
  const auto size = static_cast<std::size_t>(length);
  std::vector<TokenId> inputs(size);
  std::vector<TokenId> targets(size);
  std::vector<int> positions(size);
  ASSERT_EQ(index.num_samples(), (static_cast<Index>(corpus.tokens.size()) - 1) / length);
  for (Index sample = 0; sample < index.num_samples(); ++sample) {
    index.read(sample, inputs.data(), targets.data(), separate ? positions.data() : nullptr);
    int position = 0;
    for (std::size_t t = 0; t < size; ++t) {
      const std::size_t at = static_cast<std::size_t>(sample) * size + t;
      const bool starts = t == 0 || corpus.documents[at] != corpus.documents[at - 1];
      position = starts ? 0 : position + 1;
      const bool ends = separate && corpus.documents[at + 1] != corpus.documents[at];
      const bool counts = !masked || corpus.loss_mask[at + 1] != 0;
      ASSERT_EQ(inputs[t], corpus.tokens[at]);
      ASSERT_EQ(targets[t], ends || !counts ? -1 : corpus.tokens[at + 1]) << "sample " << sample << ", token " << t;
      if (separate) {
        ASSERT_EQ(positions[t], position) << "sample " << sample << ", token " << t;
      }
    }
  }
}

}  // namespace

TEST_F(LoaderDocumentsTest, positions_restart_where_files_state_documents) {
  constexpr int num_documents = 60;
  for (const unsigned seed : {1u, 2u, 3u}) {
    const Corpus corpus = random_corpus(seed, num_documents);
    const std::string name = std::to_string(seed);
    MegatronWriter megatron({directory_ / (name + ".bin"), directory_ / (name + ".idx")}, 2);
    write_documents(megatron, corpus, num_documents);
    TokenFileWriter ours(directory_ / name, "", 5000);
    write_documents(ours, corpus, num_documents);
    for (const Index length : {1, 2, 7, 16, 61})
      for (const std::string& file : {name + ".bin", name}) {
        const SampleIndex separate(subset(directory_ / file), {.sequence_length = length, .separate_documents = true});
        EXPECT_FALSE(separate.all_targets_count());
        expect_rows(separate, corpus, length, true, false);
        const SampleIndex joined(subset(directory_ / file), {.sequence_length = length});
        EXPECT_TRUE(joined.all_targets_count());
        expect_rows(joined, corpus, length, false, false);
      }
  }
}

TEST_F(LoaderDocumentsTest, a_token_ends_documents_where_the_file_does_not_state_them) {
  const Corpus corpus = random_corpus(4, 80, true);
  TokenFileWriter writer(directory_ / "plain", "", 5000);
  writer.append(corpus.tokens);
  writer.finish();
  for (const Index length : {1, 5, 32})
    expect_rows(
        SampleIndex(subset(directory_ / "plain", end_of_text), {.sequence_length = length, .separate_documents = true}),
        corpus, length, true, false);
  const TokenFile file(directory_ / "plain");
  expect_error(ExitCode::data, {"/plain", "data.documents", "data.document_end"},
               [&] { require_documents(file, {}, "data.documents"); });
  EXPECT_NO_THROW(require_documents(file, end_of_text, "data.documents"));
}

TEST_F(LoaderDocumentsTest, targets_that_a_loss_mask_leaves_out_are_ignored) {
  const Corpus corpus = random_corpus(5, 40);
  write_with_mask(directory_ / "masked", corpus);
  for (const Index length : {1, 9, 30}) {
    const SampleIndex index(subset(directory_ / "masked"), {.sequence_length = length});
    EXPECT_FALSE(index.all_targets_count());
    expect_rows(index, corpus, length, false, true);
  }
}

TEST_F(LoaderDocumentsTest, a_split_by_documents_has_each_on_one_side_and_whole) {
  constexpr int num_documents = 400;
  const Corpus corpus = random_corpus(6, num_documents);
  MegatronWriter writer({directory_ / "set.bin", directory_ / "set.idx"}, 2);
  write_documents(writer, corpus, num_documents);
  for (const double fraction : {0.0, 0.1, 0.6}) {
    const DocumentSplit split = split_documents(TokenFile(directory_ / "set.bin"), {}, 11, 0, fraction);
    EXPECT_LE(split.train.size() + split.validation.size(), num_documents);
    std::vector<std::set<int>> documents(2);
    std::vector<TokenId> all;
    for (const bool trains : {true, false}) {
      Corpus side;
      TokenSubset part(TokenFile(directory_ / "set.bin"), {}, trains ? split.train : split.validation,
                       trains ? split.train_tokens : split.validation_tokens);
      side.tokens.resize(static_cast<std::size_t>(part.num_tokens()));
      part.read(0, side.tokens);
      for (std::size_t i = 0; i < side.tokens.size(); ++i) {
        const auto at = static_cast<std::size_t>(side.tokens[i]) - 1;  // each token says where it stood
        EXPECT_EQ(part.position_in_file(static_cast<Index>(i)), static_cast<Index>(at));
        side.documents.push_back(corpus.documents[at]);
        documents[trains ? 0 : 1].insert(corpus.documents[at]);
      }
      all.insert(all.end(), side.tokens.begin(), side.tokens.end());
      if (side.tokens.size() < 40)
        continue;
      std::vector<TokenSubset> parts;
      parts.push_back(std::move(part));
      expect_rows(SampleIndex(std::move(parts), {.sequence_length = 13, .separate_documents = true}), side, 13, true,
                  false);
    }
    for (const int document : documents[0])
      EXPECT_FALSE(documents[1].contains(document)) << document;
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, corpus.tokens) << "each token is on one side";
    EXPECT_NEAR(
        static_cast<double>(documents[1].size()) / static_cast<double>(documents[0].size() + documents[1].size()),
        fraction, 0.06);
  }
}

TEST_F(LoaderDocumentsTest, a_split_is_decided_by_seed_file_and_document_alone) {
  const Corpus corpus = random_corpus(8, 200, true);
  TokenFileWriter plain(directory_ / "plain", "", 5000);
  plain.append(corpus.tokens);
  plain.finish();
  TokenFileWriter stated(directory_ / "stated", "", 5000);
  write_documents(stated, corpus, 200);
  const auto validation = [&](const char* name, std::uint64_t seed, std::size_t number) {
    const DocumentSplit split = split_documents(TokenFile(directory_ / name), end_of_text, seed, number, 0.3);
    std::vector<Index> places;
    for (const DocumentRun& run : split.validation)
      places.push_back(run.in_file);
    return places;
  };
  EXPECT_EQ(validation("plain", 1, 0), validation("stated", 1, 0));
  EXPECT_NE(validation("stated", 1, 0), validation("stated", 2, 0));
  EXPECT_NE(validation("stated", 1, 0), validation("stated", 1, 1));
}

TEST_F(LoaderDocumentsTest, a_split_that_leaves_no_sequence_is_refused) {
  const Corpus corpus = random_corpus(9, 30);
  TokenFileWriter writer(directory_ / "set", "", 5000);
  write_documents(writer, corpus, 30);
  const TokenFile file(directory_ / "set");
  DocumentSplit split = split_documents(file, {}, 1, 0, 0.05);
  std::vector<TokenSubset> parts;
  parts.emplace_back(TokenFile(directory_ / "set"), std::nullopt, split.validation, split.validation_tokens);
  expect_error(ExitCode::data, {"data.validation_fraction", "/set", "at least 101"},
               [&] { SampleIndex(std::move(parts), {.sequence_length = 100}); });
}

TEST_F(LoaderDocumentsTest, batches_carry_positions_for_any_number_of_ranks) {
  const Corpus corpus = random_corpus(10, 300);
  TokenFileWriter writer(directory_ / "set", "", 5000);
  write_documents(writer, corpus, 300);
  const auto step = [&](int size, Index micro) {
    Batch whole;
    for (int rank = 0; rank < size; ++rank) {
      std::vector<TokenFile> files;
      files.emplace_back(directory_ / "set");
      TokenLoader loader = one_set_loader(std::move(files), {.micro_batch_size = micro,
                                                             .sequence_length = 11,
                                                             .global_batch_size = 24,
                                                             .rank = rank,
                                                             .size = size,
                                                             .seed = 3,
                                                             .separate_documents = true});
      EXPECT_FALSE(loader.all_targets_count());
      loader.seek(48);
      for (const Batch& batch : loader.next_step()) {
        EXPECT_EQ(batch.positions.size(), batch.inputs.size());
        whole.inputs.insert(whole.inputs.end(), batch.inputs.begin(), batch.inputs.end());
        whole.targets.insert(whole.targets.end(), batch.targets.begin(), batch.targets.end());
        whole.positions.insert(whole.positions.end(), batch.positions.begin(), batch.positions.end());
      }
    }
    return whole;
  };
  const Batch wanted = step(1, 24);
  for (const int size : {2, 3, 4, 6, 8}) {
    const Batch found = step(size, 1);
    EXPECT_EQ(found.inputs, wanted.inputs);
    EXPECT_EQ(found.targets, wanted.targets);
    EXPECT_EQ(found.positions, wanted.positions);
  }
}

TEST_F(LoaderDocumentsTest, rows_without_a_sample_see_nothing_and_count_nothing) {
  const Corpus corpus = random_corpus(11, 30);
  TokenFileWriter writer(directory_ / "set", "", 5000);
  write_documents(writer, corpus, 30);
  std::vector<TokenFile> files;
  files.emplace_back(directory_ / "set");
  const SequentialLoader loader(std::move(files),
                                {.micro_batch_size = 4, .sequence_length = 10, .separate_documents = true}, 3);
  const Batch batch = loader.batch(0);
  ASSERT_EQ(batch.positions.size(), 40u);
  EXPECT_EQ(std::vector<int>(batch.positions.begin() + 30, batch.positions.end()), std::vector<int>(10, 0));
  EXPECT_EQ(std::vector<TokenId>(batch.targets.begin() + 30, batch.targets.end()), std::vector<TokenId>(10, -1));
}

TEST(LoaderDocuments, rows_stay_as_they_are) {
  const TemporaryDirectory directory;
  TokenFileWriter writer(directory / "rows", "", 100);
  writer.set_row_length(4);
  for (int row = 0; row < 5; ++row) {
    writer.append(std::vector<TokenId>(row < 4 ? 4 : 5, 1));
    writer.end_document();
  }
  writer.finish();
  const auto index = [&](Index length, bool separates) {
    std::vector<TokenFile> files;
    files.emplace_back(directory / "rows");
    return SampleIndex(whole_files(std::move(files)), {.sequence_length = length, .separate_documents = separates});
  };
  EXPECT_EQ(index(4, true).num_samples(), 5);
  expect_error(ExitCode::data, {"rows of another length"}, [&] { index(5, true); });
  expect_error(ExitCode::data, {"see each other", "data.documents = \"separate\""}, [&] { index(4, false); });
  expect_error(ExitCode::data, {"rows", "data.validation_fraction", "--validation-fraction"},
               [&] { split_documents(TokenFile(directory / "rows"), {}, 0, 0, 0.5); });
}
