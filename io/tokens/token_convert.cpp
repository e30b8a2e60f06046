// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/token_convert.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "io/tokens/megatron_writer.hpp"
#include "io/tokens/token_documents.hpp"
#include "io/tokens/token_statistics.hpp"

namespace espalier {
namespace {

void refuse_input_as_output(const TokenFile& file, const Path& output) {
  std::error_code ignored;
  if (std::filesystem::equivalent(file.info().path, output, ignored))
    throw Error(ExitCode::usage, {.what = "the output would replace an input",
                                  .where = output.string(),
                                  .got = "--output is an input",
                                  .wanted = "another name",
                                  .todo = "choose another --output"});
}

// Of all inputs together, before anything is written.
ConvertSummary check_inputs(const std::vector<TokenFile>& files, const ConvertOptions& options) {
  constexpr Index max_ids = std::numeric_limits<TokenId>::max();
  ConvertSummary summary;
  summary.tokenizer = options.tokenizer;
  summary.vocab_size = options.tokenizer_size;
  for (const TokenFile& file : files) {
    const TokenFileInfo& info = file.info();
    require_same_tokenizer(info, summary.tokenizer, "convert the files of each tokenizer by themselves");
    file.verify_index();
    file.verify_checksum();
    file.check_vocabulary(options.vocab_size > 0 ? options.vocab_size : max_ids, "--vocab-size");
    if (options.tokenizer_size > 0)
      file.check_vocabulary(options.tokenizer_size, "the vocabulary of --tokenizer");
    if (info.bytes_per_token > 2)
      summary.bytes_per_token = 4;
    if (options.vocab_size == 0)
      summary.vocab_size =
          std::max(summary.vocab_size,
                   info.vocab_size > 0 ? info.vocab_size : count_tokens(file, std::nullopt).largest_id + Index{1});
  }
  if (options.vocab_size > 0)
    summary.vocab_size = options.vocab_size;
  return summary;
}

void append(MegatronWriter& writer, const TokenFile&, Index, std::span<const TokenId> tokens) { writer.append(tokens); }

void append(TokenFileWriter& writer, const TokenFile& file, Index first, std::span<const TokenId> tokens) {
  if (!file.has_loss_mask()) {
    writer.append(tokens);
    return;
  }
  std::vector<std::uint8_t> loss_mask(tokens.size());
  file.read_loss_mask(first, loss_mask);
  writer.append(tokens, loss_mask);
}

// @param ends_documents else no document is known, and none is stated
template <class Writer>
void write_all_files(const std::vector<TokenFile>& files, const ConvertOptions& options, bool ends_documents,
                     ConvertSummary& summary, Writer& writer) {
  for (const TokenFile& file : files) {
    Index first = 0;
    read_documents(file, options.document_end, [&](std::span<const TokenId> piece, bool ends) {
      append(writer, file, first, piece);
      first += static_cast<Index>(piece.size());
      if (!ends || !ends_documents)
        return;
      ++summary.num_documents;
      writer.end_document();
    });
    summary.num_tokens += first;
  }
  writer.finish();
}

// A file in rows has a token behind its last one, where another file would begin within a row.
void refuse_joined_rows(const std::vector<TokenFile>& files) {
  const auto rows = std::ranges::find_if(files, [](const TokenFile& file) { return file.info().row_length > 0; });
  if (files.size() > 1 && rows != files.end())
    throw Error(ExitCode::data, {.what = "a token file in rows cannot be joined with others",
                                 .where = rows->info().path.string(),
                                 .got = fmt::format("rows of {} tokens", rows->info().row_length),
                                 .wanted = "one input, or inputs without rows",
                                 .todo = "name all files in data.train, or pack their conversations together"});
}

void refuse_loss_masks(const std::vector<TokenFile>& files) {
  for (const TokenFile& file : files)
    if (file.has_loss_mask())
      throw Error(ExitCode::data, {.what = "a loss mask would be lost",
                                   .where = file.info().path.string(),
                                   .got = "tokens with a loss mask, which Megatron's format does not have",
                                   .wanted = "--format espalier",
                                   .todo = "train on the file as it is"});
}

}  // namespace

ConvertSummary convert_tokens(const std::vector<Path>& inputs, const Path& output, const ConvertOptions& options) {
  std::vector<TokenFile> files;
  for (const Path& input : inputs)
    refuse_input_as_output(files.emplace_back(input), output);
  if (options.format == TokenFormat::megatron) {
    const MegatronPair pair = megatron_output(output);
    require_new_megatron(pair);
    refuse_loss_masks(files);
    ConvertSummary summary = check_inputs(files, options);
    MegatronWriter writer(pair, summary.bytes_per_token);
    write_all_files(files, options, true, summary, writer);
    summary.written = {pair.tokens, pair.index};
    return summary;
  }
  require_own_output(output, token_file_mark);
  refuse_joined_rows(files);
  ConvertSummary summary = check_inputs(files, options);
  TokenFileWriter writer(output, summary.tokenizer, summary.vocab_size, summary.bytes_per_token);
  writer.set_row_length(files.front().info().row_length);
  write_all_files(files, options,
                  options.document_end.has_value() || std::ranges::any_of(files, &TokenFile::states_documents), summary,
                  writer);
  summary.written = {output};
  return summary;
}

}  // namespace espalier
