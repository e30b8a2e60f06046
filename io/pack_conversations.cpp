// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack_conversations.hpp"

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <optional>
#include <thread>

#include "core/random.hpp"
#include "io/conversation_file.hpp"
#include "io/conversations.hpp"
#include "io/hash.hpp"
#include "io/input_limits.hpp"
#include "io/pack_outputs.hpp"

namespace espalier {
namespace {

constexpr std::size_t bytes_per_thread = std::size_t{1} << 20;
constexpr std::size_t most_bad_lines = 5;  // that are shown

struct Line {
  const Path* file;
  Index number;
  std::string text;
  bool is_too_long = false;
  ConversationTokens tokens = {};
  std::string problem = {};
  std::exception_ptr failure = {};
};

std::string place_of(const Line& line) { return fmt::format("{}:{}", line.file->string(), line.number); }

// Encodes lines on all threads, and takes them in their order.
class LineEncoder {
 public:
  LineEncoder(const ChatTemplate& chat, const Tokenizer& tokenizer, Index num_threads)
      : chat_(chat),
        tokenizer_(tokenizer),
        num_threads_(num_threads > 0 ? static_cast<std::size_t>(num_threads)
                                     : std::max(1U, std::thread::hardware_concurrency())) {}

  void add(Line line, const auto& take) {
    num_bytes_ += line.text.size();
    lines_.push_back(std::move(line));
    if (num_bytes_ >= num_threads_ * bytes_per_thread)
      flush(take);
  }

  void flush(const auto& take) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < lines_.size(); i = next++)
        encode(lines_[i]);
    };
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < std::min(num_threads_, lines_.size()); ++i)
      threads.emplace_back(work);
    work();
    threads.clear();  // waits for them
    for (Line& line : lines_) {
      if (line.failure)
        std::rethrow_exception(line.failure);
      take(line);
    }
    lines_.clear();
    num_bytes_ = 0;
  }

 private:
  void encode(Line& line) const {
    try {
      if (line.is_too_long)
        throw std::runtime_error(fmt::format("the line has more than {} bytes", LargestFile::conversation));
      line.tokens = encode_conversation(read_conversation(line.text), chat_, tokenizer_);
    } catch (const Error& error) {  // of the tokenizer
      line.problem = error.report().what;
    } catch (const std::runtime_error& error) {
      line.problem = error.what();
    } catch (...) {
      line.failure = std::current_exception();
    }
  }

  const ChatTemplate& chat_;
  const Tokenizer& tokenizer_;
  std::size_t num_threads_;
  std::vector<Line> lines_;
  std::size_t num_bytes_ = 0;  // of their texts
};

// Calls `visit` with all lines that are not empty. Of a line that is too long only the begin is kept.
void for_each_line(const Path& path, const auto& visit) {
  const InputFile file(path, ExitCode::data);
  Line line{&path, 1, ""};
  const auto end_line = [&] {
    if (line.is_too_long || line.text.find_first_not_of(" \t\r") != std::string::npos)
      visit(line);
    line = {&path, line.number + 1, ""};
  };
  file.read_pieces(0, file.size(), std::size_t{1} << 20, [&](std::string_view piece) {
    while (!piece.empty()) {
      const std::size_t end = piece.find('\n');
      const std::string_view part = piece.substr(0, end);
      line.is_too_long = line.is_too_long || line.text.size() + part.size() > LargestFile::conversation;
      if (!line.is_too_long)
        line.text += part;
      if (end == std::string_view::npos)
        return;
      end_line();
      piece.remove_prefix(end + 1);
    }
  });
  end_line();
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
  const auto take = [&](Line& line) {
    if (!line.problem.empty()) {
      if (!options.skip_bad)
        throw Error(ExitCode::data, {.what = "a line holds no conversation",
                                     .where = place_of(line),
                                     .got = line.problem,
                                     .wanted = R"({"messages": [{"role": "user", "content": "..."}, ...]}, or )"
                                               R"({"prompt": "...", "completion": "..."})",
                                     .todo = "correct the line, or leave such lines out: --skip-bad"});
      ++summary.num_bad;
      if (summary.bad_lines.size() < most_bad_lines)
        summary.bad_lines.push_back(fmt::format("{}: {}", place_of(line), line.problem));
      return;
    }
    const bool validates =
        validation && random.uniform(xxh3_64(line.text.data(), line.text.size())) < options.validation_fraction;
    (validates ? *validation : train).add(std::move(line.tokens));
  };
  LineEncoder encoder(chat, tokenizer, options.num_threads);
  for (const Path& path : files)
    for_each_line(path, [&](Line& line) { encoder.add(std::move(line), take); });
  encoder.flush(take);

  train.require_conversations();
  if (validation)
    validation->require_conversations();
  train.finish();
  summary.train = train.summary();
  if (validation) {
    validation->finish();
    summary.validation = validation->summary();
  }
  return summary;
}

}  // namespace espalier
