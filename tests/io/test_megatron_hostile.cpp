// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Megatron indices that were damaged or forged. What is read of one are the documents that it describes, or it is
// refused with an error that names it.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <random>

#include "io/tokens/megatron_writer.hpp"
#include "tests/io/megatron_support.hpp"
#include "tests/support/memory_limit.hpp"

namespace espalier::test {
namespace {

using MegatronRandom = std::mt19937_64;
constexpr rlim_t max_memory = rlim_t{64} << 20;  // more than the process has; the files have some KB

struct Layout {
  std::uint64_t sequences;
  std::uint64_t boundaries;
  std::size_t pointers;
  std::size_t documents;
};

Layout layout_of(const std::string& index) {
  const auto sequences = get<std::uint64_t>(index, 18);
  return {sequences, get<std::uint64_t>(index, 26), 34 + 4 * sequences, 34 + 12 * sequences};
}

// The lengths of the documents, from the description of the format and without the reader; none: the index is wrong.
std::optional<std::vector<Index>> described(const std::string& index, std::size_t token_bytes) {
  if (index.size() < 34 || index.substr(0, 9) != std::string("MMIDIDX\0\0", 9) || get<std::uint64_t>(index, 9) != 1)
    return std::nullopt;
  const int code = static_cast<unsigned char>(index[17]);
  const std::int64_t width = code == 1 ? 1 : code == 8 ? 2 : code == 4 ? 4 : code == 5 ? 8 : 0;
  const Layout layout = layout_of(index);
  if (width == 0 || layout.sequences > index.size() || layout.boundaries > index.size() || layout.boundaries == 0)
    return std::nullopt;
  const std::size_t end = layout.documents + 8 * layout.boundaries;
  if (index.size() != end && index.size() != end + layout.sequences)
    return std::nullopt;
  std::vector<Index> ends = {0};  // of the sequences, in bytes
  for (std::size_t i = 0; i < layout.sequences; ++i) {
    const Index length = get<std::int32_t>(index, 34 + 4 * i);
    if (length < 0 || get<std::int64_t>(index, layout.pointers + 8 * i) != ends.back())
      return std::nullopt;
    ends.push_back(ends.back() + length * width);
  }
  if (ends.back() != static_cast<Index>(token_bytes))
    return std::nullopt;
  std::vector<Index> lengths;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < layout.boundaries; ++i) {
    const auto boundary = get<std::int64_t>(index, layout.documents + 8 * i);
    if (boundary < before || boundary > static_cast<std::int64_t>(layout.sequences) || (i == 0 && boundary != 0))
      return std::nullopt;
    if (i > 0)
      lengths.push_back((ends[static_cast<std::size_t>(boundary)] - ends[static_cast<std::size_t>(before)]) / width);
    before = boundary;
  }
  return before == static_cast<std::int64_t>(layout.sequences) ? std::optional(lengths) : std::nullopt;
}

std::size_t below(std::size_t bound, MegatronRandom& random) { return bound == 0 ? 0 : random() % bound; }

std::uint64_t any_number(std::uint64_t before, MegatronRandom& random) {
  switch (random() % 8) {
    case 0: return 0;
    case 1: return before + 1;
    case 2: return before - 1;
    case 3: return ~std::uint64_t{0};
    case 4: return std::uint64_t{1} << (random() % 64);
    case 5: return before + (std::uint64_t{1} << (random() % 64));
    case 6: return random() % 200;
    default: return random();
  }
}

// A number of the header or of a list.
void change_number(std::string& index, MegatronRandom& random) {
  const Layout layout = layout_of(index);
  const auto change = [&](std::size_t at) { put(index, at, any_number(get<std::uint64_t>(index, at), random)); };
  switch (random() % 6) {
    case 0: change(std::array{9, 18, 26}[random() % 3]); break;
    case 1: index[17] = static_cast<char>(random() % 12); break;
    case 2: {
      const std::size_t at = 34 + 4 * below(layout.sequences, random);
      put(index, at, static_cast<std::uint32_t>(any_number(get<std::uint32_t>(index, at), random)));
      break;
    }
    case 3: change(layout.pointers + 8 * below(layout.sequences, random)); break;
    default: change(layout.documents + 8 * below(layout.boundaries, random));
  }
}

// What may leave an index that fits: a boundary moved, left out or twice; a token given to the next sequence.
void change_meaning(std::string& index, MegatronRandom& random) {
  const Layout layout = layout_of(index);
  const std::size_t at = layout.documents + 8 * (1 + below(layout.boundaries - 2, random));
  switch (random() % 5) {
    case 0: put(index, at, get<std::int64_t>(index, at - 8)); break;
    case 1:
      index.erase(at, 8);
      put(index, 26, layout.boundaries - 1);
      break;
    case 2:
      index.insert(at, index.substr(at, 8));
      put(index, 26, layout.boundaries + 1);
      break;
    case 3: index.append(layout.sequences, static_cast<char>(random())); break;
    default: {
      const std::size_t sequence = below(layout.sequences - 1, random);
      const auto add = [&](std::size_t where, auto more) {
        put(index, where, static_cast<decltype(more)>(get<decltype(more)>(index, where) + more));
      };
      add(34 + 4 * sequence, std::int32_t{-1});
      add(34 + 4 * (sequence + 1), std::int32_t{1});
      add(layout.pointers + 8 * (sequence + 1), std::int64_t{-2});
    }
  }
}

void change_index_bytes(std::string& index, MegatronRandom& random) {
  const std::size_t at = below(index.size(), random);
  const std::size_t size = std::min(index.size() - at, 1 + below(random() % 2 == 0 ? 8 : 200, random));
  switch (random() % 6) {
    case 0: index[at] = static_cast<char>(index[at] ^ (1 << (random() % 8))); break;
    case 1: index.resize(at); break;
    case 2: index.erase(at, size); break;
    case 3: index.insert(at, index.substr(at, size)); break;
    case 4: index.append(size, static_cast<char>(random())); break;
    default:
      for (std::size_t i = at; i < at + size; ++i)
        index[i] = static_cast<char>(random());
  }
}

// An Error, within bounds of memory and time; none: it ends without one.
template <class Read>
std::optional<Error> error_of_index(const Read& read) {
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

void expect_clear_error(const Error& error) {
  const std::string text = error.what();
  EXPECT_EQ(error.code(), ExitCode::data) << text;
  EXPECT_NE(text.find("case.idx"), std::string::npos) << text;
  EXPECT_LT(text.size(), 2000U) << text;
  EXPECT_FALSE(std::ranges::any_of(text, [](unsigned char c) { return c < ' ' && c != '\n'; })) << text;
  EXPECT_FALSE(error.report().got.empty() || error.report().wanted.empty() || error.report().todo.empty()) << text;
}

struct Counts {
  long read = 0;
  long refused = 0;
};

// @param is_grown 64 GiB of zeros follow
void try_index(const Path& prefix, const std::string& index, std::size_t token_bytes, bool is_grown, Counts& counts) {
  write_bytes(prefix.string() + ".idx", index);
  if (is_grown)
    std::filesystem::resize_file(prefix.string() + ".idx", std::uintmax_t{1} << 36);
  std::vector<Index> lengths;
  const auto error = error_of_index([&] {
    const TokenFile file(prefix);
    file.for_each_document([&](Index length) {
      if (lengths.size() < 1000)
        lengths.push_back(length);
    });
  });
  const auto wanted = is_grown ? std::nullopt : described(index, token_bytes);
  EXPECT_EQ(error.has_value(), !wanted.has_value()) << (error ? error->what() : "no error");
  ++(error ? counts.refused : counts.read);
  if (error) {
    expect_clear_error(*error);
  } else {
    EXPECT_EQ(lengths, wanted.value_or(std::vector<Index>{-1}));
  }
  // Asked for a document before all of the index was read: within the file, or refused.
  const auto of_begins = error_of_index([&] {
    const TokenFile file(prefix);
    for (const Index begin : file.document_starts(3, 50)) {
      EXPECT_GT(begin, 3);
      EXPECT_LT(begin, 53);
    }
  });
  EXPECT_TRUE(error || !of_begins);
  if (of_begins)
    expect_clear_error(*of_begins);
}

// The same number makes the same case.
void try_cases(long first, long last) {
  const TemporaryDirectory folder;
  const Path prefix = folder / "case";
  MegatronWriter writer(megatron_output(prefix), 2, 9);
  for (TokenId document = 0; document < 30; ++document) {
    writer.append(std::vector<TokenId>(static_cast<std::size_t>(document * 7 % 23), document));
    writer.end_document();
  }
  writer.finish();
  const std::string base = read_bytes(folder / "case.idx");
  const std::size_t token_bytes = std::filesystem::file_size(folder / "case.bin");
  ASSERT_TRUE(described(base, token_bytes));
  Counts counts;
  for (long number = first; number <= last && !testing::Test::HasFailure(); ++number) {
    SCOPED_TRACE("case " + std::to_string(number));
    MegatronRandom random(static_cast<std::uint64_t>(number));
    std::string index = base;
    bool is_grown = false;
    switch (random() % 20) {
      case 0: is_grown = true; [[fallthrough]];
      default: change_number(index, random); break;
      case 1:
      case 2:
      case 3:
      case 4:
      case 5:
      case 6: change_index_bytes(index, random); break;
      case 7:
      case 8:
      case 9:
        for (std::size_t i = 1 + random() % 3; i > 0; --i)
          change_meaning(index, random);
    }
    try {
      try_index(prefix, index, token_bytes, is_grown, counts);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "no espalier::Error: " << error.what();
    }
  }
  const long cases = last - first + 1;
  EXPECT_GT(counts.read, cases / 20);
  EXPECT_GT(counts.refused, cases / 2);
  std::printf("%ld cases: %ld read, %ld refused\n", cases, counts.read, counts.refused);
}

TEST(MegatronHostile, SomeIndices) { try_cases(1, 500); }

TEST(MegatronHostileLong, TenThousandIndices) { try_cases(1, 10000); }

}  // namespace
}  // namespace espalier::test
