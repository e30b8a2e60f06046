// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "core/random.hpp"
#include "io/token_file.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr Index few_documents = 50;
constexpr std::size_t piece_bytes = std::size_t{16} << 20;  // encoded at a time, from line start to line start

[[noreturn]] void refuse(std::string what, std::string where, std::string todo) {
  throw Error(ExitCode::data, {.what = std::move(what), .where = std::move(where), .todo = std::move(todo)});
}

// Empty without a match.
std::vector<std::string> expand_pattern(const std::string& pattern) {
  std::error_code ignored;
  if (std::filesystem::exists(pattern, ignored))
    return {pattern};  // an existing path wins over its meaning as a pattern
  ::glob_t found = {};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  const bool only_files = pattern.find_first_of("*?[") != std::string::npos;
  if (only_files)
    std::erase_if(paths, [](const std::string& path) { return std::filesystem::is_directory(path); });
  return paths;
}

using DocumentVisitor = std::function<void(std::string_view)>;

void for_each_document(std::string_view text, const std::string& separator, const DocumentVisitor& visit) {
  while (!text.empty()) {
    const std::size_t found = separator.empty() ? std::string_view::npos : text.find(separator);
    const std::size_t size = found == std::string_view::npos ? text.size() : found + separator.size();
    visit(text.substr(0, size));
    text.remove_prefix(size);
  }
}

void encode(std::string_view text, const Tokenizer& tokenizer, TokenFileWriter& writer) {
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    std::size_t size = text.size();
    if (size > piece_bytes) {
      const std::size_t line_end = text.find('\n', piece_bytes);
      size = line_end == std::string_view::npos ? size : line_end + 1;
    }
    tokens.clear();
    tokenizer.encode(text.substr(0, size), tokens);
    writer.append(tokens);
    text.remove_prefix(size);
  }
}

// Where the last `fraction` of a text starts, moved to the start of a line, in a text of one line to that of a word:
// forwards, or backwards where that would leave nothing.
std::size_t tail_start(std::string_view text, double fraction) {
  const auto start = static_cast<std::size_t>(static_cast<double>(text.size()) * (1 - fraction));
  for (const char end : {'\n', ' '})
    for (const std::size_t found : {text.find(end, start), text.substr(0, start).rfind(end)})
      if (found != std::string_view::npos && found + 1 < text.size())
        return found + 1;
  return text.size();
}

// A name as a pattern of --exclude that matches it alone.
std::string as_pattern(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("*?[]\\").find(c) != std::string_view::npos)
      pattern += '\\';
    pattern += c;
  }
  return pattern;
}

void check_text(const Path& path, std::string_view text) {
  const std::size_t zero = text.substr(0, 65536).find('\0');
  if (zero != std::string_view::npos)
    throw Error(ExitCode::data, {.what = "a file to pack is not text",
                                 .where = path.string(),
                                 .got = fmt::format("a zero byte at offset {}", zero),
                                 .wanted = "plain text",
                                 .todo = fmt::format("leave it out: --exclude '{}'; or take it: --allow-binary",
                                                     as_pattern(path.filename().string()))});
}

// Nothing that is written may be what is read, or be written twice; and only files are replaced, no devices.
void check_outputs(const std::vector<Path>& files, const Path& output, const Path& validation_output) {
  const auto refuse_output = [](const Path& path, std::string what, std::string got) {
    throw Error(ExitCode::usage, {.what = std::move(what),
                                  .where = path.string(),
                                  .got = std::move(got),
                                  .wanted = "names of their own for --output and --validation",
                                  .todo = "espalier data pack --output train.bin --validation val.bin ..."});
  };
  std::vector<Path> written;
  for (const Path& path : {output, validation_output}) {
    if (path.empty() && !written.empty())
      continue;
    std::error_code ignored;  // a folder that we may not search: opening the file will say so
    const std::filesystem::file_type type = std::filesystem::status(path, ignored).type();
    if (path.filename().empty() || type == std::filesystem::file_type::directory)
      refuse_output(path, "the name of a token file is that of a directory", "a directory, or no name");
    if (std::filesystem::exists(path, ignored) && type != std::filesystem::file_type::regular)
      throw Error(ExitCode::write, {.what = "a token file would replace what is no file",
                                    .where = path.string(),
                                    .got = "a device, a pipe or a socket",
                                    .wanted = "a new name, or that of a file to replace",
                                    .todo = "choose another name"});
    for (const Path& name : {path, token_file_temporary(path)})
      written.push_back(std::filesystem::weakly_canonical(std::filesystem::absolute(name), ignored));
  }
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (std::find(written.begin(), written.begin() + static_cast<std::ptrdiff_t>(i), written[i]) !=
        written.begin() + static_cast<std::ptrdiff_t>(i))
      refuse_output(written[i], "two token files would be written to one name", "the same file twice");
    for (const Path& file : files) {
      std::error_code missing;
      if (std::filesystem::equivalent(written[i], file, missing))
        refuse_output(written[i], "a text to pack would be replaced by its own tokens", "a name among the inputs");
    }
  }
  for (const Path& path : {output, validation_output})
    if (std::error_code missing; std::filesystem::exists(path, missing) && !is_own_token_file(path))
      throw Error(ExitCode::write, {.what = "a token file would replace a file that is none",
                                    .where = path.string(),
                                    .got = "a file without the mark of `espalier data pack`",
                                    .wanted = "a new name, or that of a token file to replace",
                                    .todo = "choose another name for --output or --validation, or remove the file"});
}

// The share of documents that goes to validation, as a bound on their random numbers. By the numbers alone a small
// share of few documents may take none of them, or all: then one goes, or stays.
class DocumentChoice {
 public:
  DocumentChoice(std::uint64_t seed, double fraction) : random_(seed, "validation_split"), bound_(fraction) {}
  double number(std::string_view document) const { return random_.uniform(xxh3_64(document.data(), document.size())); }
  void see(std::string_view document) {
    const double own = number(document);
    smallest_ = std::min(smallest_, own);
    largest_ = std::max(largest_, own);
  }
  void settle() {
    if (smallest_ >= bound_)
      bound_ = std::nextafter(smallest_, 2.0);
    else if (largest_ < bound_)
      bound_ = largest_;
  }
  bool is_validation(std::string_view document) const { return number(document) < bound_; }

 private:
  RandomStream random_;
  double bound_;
  double smallest_ = 2;
  double largest_ = -1;
};

}  // namespace

std::vector<Path> expand_inputs(const std::vector<std::string>& patterns, const std::vector<std::string>& exclude) {
  std::set<Path> candidates;
  std::vector<std::string> missing;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> paths = expand_pattern(pattern);
    if (paths.empty())
      missing.push_back(pattern);
    for (const std::string& path : paths) {
      if (std::filesystem::is_directory(path))
        refuse("a directory is given where a file is wanted", path, fmt::format("name its files: '{}/*'", path));
      std::error_code broken_link;
      const Path canonical = std::filesystem::canonical(path, broken_link);
      const bool excluded = std::any_of(exclude.begin(), exclude.end(), [&](const std::string& excluded_pattern) {
        return ::fnmatch(excluded_pattern.c_str(), Path(path).filename().c_str(), 0) == 0 ||
               ::fnmatch(excluded_pattern.c_str(), canonical.filename().c_str(), 0) == 0;  // the name in messages
      });
      if (broken_link && !excluded)
        throw Error(ExitCode::data, {.what = "a file to pack cannot be reached",
                                     .where = path,
                                     .got = broken_link.message(),
                                     .wanted = "a file, or a link that leads to one",
                                     .todo = "mend the link, or leave it out with --exclude"});
      if (!excluded)
        candidates.insert(canonical);
    }
  }
  if (!missing.empty())
    refuse("no file matches", fmt::format("{}", fmt::join(missing, ", ")),
           "check the path; patterns are the shell's: * ? [a-z]");
  std::vector<Path> files;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (const Path& path : candidates) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) == 0 && seen.insert({status.st_dev, status.st_ino}).second)
      files.push_back(path);
  }
  if (files.empty())
    refuse("no files to pack", "", "name files or patterns that are not all excluded");
  return files;
}

PackSummary pack_text(const std::vector<Path>& files, const Tokenizer& tokenizer, const Path& output,
                      const Path& validation_output, const PackOptions& options) {
  const double fraction = options.validation_fraction;
  if (!(fraction >= 0 && fraction < 1))
    throw Error(ExitCode::usage, {.what = "validation fraction out of range",
                                  .got = fmt::format("{}", fraction),
                                  .wanted = "at least 0, less than 1",
                                  .todo = "espalier data pack --validation val.bin --validation-fraction 0.05"});
  if ((fraction > 0) != !validation_output.empty())
    throw Error(ExitCode::usage, {.what = "a validation file and a validation fraction go together",
                                  .got = fraction > 0 ? fmt::format("a fraction of {} and no file", fraction)
                                                      : fmt::format("{} and no fraction", validation_output.string()),
                                  .wanted = "both, or neither",
                                  .todo = "espalier data pack --validation val.bin --validation-fraction 0.05"});
  check_outputs(files, output, validation_output);

  PackSummary summary;
  DocumentChoice choice(options.seed, fraction);
  for (const Path& path : files) {
    const MappedFile file(path, ExitCode::data);
    if (!options.allow_binary)
      check_text(path, file.text());
    ++summary.num_files;
    if (file.size() == 0)
      summary.empty_files.push_back(path);
    summary.text_bytes += static_cast<Index>(file.size());
    for_each_document(file.text(), options.document_separator, [&](std::string_view document) {
      ++summary.num_documents;
      choice.see(document);
    });
  }
  choice.settle();
  summary.split_inside_documents = fraction > 0 && summary.num_documents < few_documents;

  for (const Path& path : {output, validation_output})
    if (path.has_parent_path())
      make_directories(path.parent_path());
  TokenFileWriter train(output, tokenizer.name(), tokenizer.vocab_size());
  std::optional<TokenFileWriter> validation;
  if (fraction > 0)
    validation.emplace(validation_output, tokenizer.name(), tokenizer.vocab_size());

  const auto pack_document = [&](std::string_view document) {
    if (summary.split_inside_documents) {
      const std::size_t tail = tail_start(document, fraction);
      encode(document.substr(0, tail), tokenizer, train);
      encode(document.substr(tail), tokenizer, *validation);
    } else if (fraction > 0 && choice.is_validation(document)) {
      encode(document, tokenizer, *validation);
      ++summary.num_validation_documents;
    } else {
      encode(document, tokenizer, train);
    }
  };
  for (const Path& path : files)
    for_each_document(MappedFile(path, ExitCode::data).text(), options.document_separator, pack_document);

  summary.train_tokens = train.num_tokens();
  summary.validation_tokens = validation ? validation->num_tokens() : 0;
  if (summary.train_tokens == 0 || (validation && summary.validation_tokens == 0))
    refuse(summary.train_tokens == 0 ? "no text is left for training" : "no text is left for validation",
           fmt::format("{}, {}, {}", counted(summary.num_files, "file"), counted(summary.num_documents, "document"),
                       counted(summary.text_bytes, "byte")),
           "give more text, or change the validation fraction or the document separator");
  train.finish();
  if (validation)
    validation->finish();
  return summary;
}

}  // namespace espalier
