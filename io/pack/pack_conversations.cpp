// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/pack_conversations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "core/random.hpp"
#include "io/hash.hpp"
#include "io/input_limits.hpp"
#include "io/pack/byte_source.hpp"
#include "io/pack/conversation_file.hpp"
#include "io/pack/conversations.hpp"
#include "io/pack/ordered_work.hpp"
#include "io/pack/pack.hpp"
#include "io/strings.hpp"

namespace espalier {
namespace {

constexpr std::size_t max_bad_lines = 5;  // that are shown

struct Line {
  Index number = 1;
  std::string text = {};
  bool is_too_long = false;
  ConversationTokens tokens = {};
  std::string problem = {};
};

// Lines that are encoded at once.
struct LineBlock {
  std::vector<Line> lines;
  std::size_t num_bytes = 0;
};

// Calls `visit` with the lines of a text that are not empty, block by block. Of a line that is too long only the
// beginning is kept.
void read_line_blocks(ByteSource& source, const std::function<void(LineBlock)>& visit) {
  constexpr std::size_t max_bytes = std::size_t{1} << 20;
  LineBlock block;
  Line line;
  const auto add = [&](std::string_view part) {
    line.is_too_long = line.is_too_long || line.text.size() + part.size() > LargestFile::conversation;
    if (!line.is_too_long)
      line.text += part;
  };
  const auto end_line = [&] {
    const Index next = line.number + 1;
    block.num_bytes += line.text.size();
    if (line.is_too_long || line.text.find_first_not_of(json_white_space) != std::string::npos)
      block.lines.push_back(std::move(line));
    line = {.number = next};
    if (block.num_bytes >= max_bytes)
      visit(std::exchange(block, {}));
  };
  std::string piece(max_bytes, '\0');
  for (std::size_t size = piece.size(); size == piece.size();) {
    size = source.read(piece.data(), piece.size());
    std::string_view rest(piece.data(), size);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      add(rest.substr(0, end));
      end_line();
      rest.remove_prefix(end + 1);
    }
    add(rest);
  }
  end_line();
  visit(std::move(block));
}

void encode_line(Line& line, const ChatTemplate& chat, const Tokenizer& tokenizer) {
  try {
    if (line.is_too_long)
      throw std::runtime_error(fmt::format("the line has more than {} bytes", LargestFile::conversation));
    line.tokens = encode_conversation(read_conversation(line.text), chat, tokenizer);
  } catch (const Error& error) {  // of the tokenizer
    line.problem = error.report().what;
  } catch (const std::runtime_error& error) {
    line.problem = error.what();
  }
}

}  // namespace

ConversationSummary pack_conversations(const std::vector<Path>& files, const Tokenizer& tokenizer,
                                       const ChatTemplate& chat, const Path& output, const Path& validation_output,
                                       const ConversationOptions& options) {
  check_validation_fraction(options.validation_fraction, validation_output);
  check_pack_outputs(files, output, validation_output);
  const TokenId padding = answer_end_token(chat, tokenizer);
  for (const Path& path : {output, validation_output})
    if (path.has_parent_path())
      make_directories(path.parent_path());
  ConversationFile train(output, tokenizer, options.sequence_length, padding);
  std::optional<ConversationFile> validation;
  if (!validation_output.empty())
    validation.emplace(validation_output, tokenizer, options.sequence_length, padding);

  ConversationSummary summary;
  const RandomStream random(options.seed, "validation conversations");
  const auto take = [&](Line& line, const Path& path) {
    if (!line.problem.empty()) {
      const std::string where = fmt::format("{}:{}", input_name(path), line.number);
      if (!options.skip_bad)
        throw Error(ExitCode::data, {.what = "a line holds no conversation",
                                     .where = where,
                                     .got = line.problem,
                                     .wanted = R"({"messages": [{"role": "user", "content": "..."}, ...]}, or )"
                                               R"({"prompt": "...", "completion": "..."})",
                                     .todo = "correct the line, or skip such lines: --skip-bad"});
      ++summary.num_bad;
      if (summary.bad_lines.size() < max_bad_lines)
        summary.bad_lines.push_back(fmt::format("{}: {}", where, line.problem));
      return;
    }
    const bool validates =
        validation && random.uniform(xxh3_64(line.text.data(), line.text.size())) < options.validation_fraction;
    (validates ? *validation : train).add(std::move(line.tokens));
  };
  OrderedWork work(options.num_threads > 0 ? options.num_threads : std::max(1U, std::thread::hardware_concurrency()));
  for (const Path& path : files) {
    const std::unique_ptr<ByteSource> source = open_bytes(path);
    read_line_blocks(*source, [&](LineBlock given) {
      const auto block = std::make_shared<LineBlock>(std::move(given));
      work.add(
          [&, block] {
            for (Line& line : block->lines)
              encode_line(line, chat, tokenizer);
          },
          [&, block] {
            for (Line& line : block->lines)
              take(line, path);
          },
          block->num_bytes);
    });
  }
  work.drain();

  train.require_conversations();
  if (validation)
    validation->require_conversations();
  // Both are complete before either gets its name: no half of the output is left where the disk is full.
  train.complete();
  if (validation) {
    validation->complete();
    validation->finish();
    summary.validation = validation->summary();
  }
  train.finish();
  summary.train = train.summary();
  return summary;
}

}  // namespace espalier
