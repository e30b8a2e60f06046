// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/run_tokenizer.hpp"

#include <fmt/format.h>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/checkpoint/set_aside.hpp"
#include "io/input_limits.hpp"
#include "io/records/run_paths.hpp"
#include "io/text/tokenizer_files.hpp"
#include "io/tokens/token_file.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/texts.hpp"
#include "training/checkpoint/checkpoint_tokenizer.hpp"
#include "training/config/data_files.hpp"
#include "training/loop/generated_text.hpp"
#include "training/pretrained/hugging_face.hpp"

namespace espalier {
namespace {

Path kept_tokenizer(const Path& run) { return run / RunFolder::tokenizer; }

// The first that a token file names.
std::string stated_tokenizer(const RunConfig::Data& data) {
  for (const std::vector<std::string>* entries : {&data.train, &data.validation})
    for (const std::string& path : token_files_of(*entries))
      if (std::string name = TokenFile(path).info().tokenizer; !name.empty())
        return name;
  return "";
}

// The directory with the tokenizer's files of a model that a run starts from.
Path tokenizer_of_start(const Path& start) {
  switch (kind_of_directory(start)) {
    case DirectoryKind::hugging_face: return start;
    case DirectoryKind::checkpoint: return tokenizer_beside(start);
    case DirectoryKind::run:
    case DirectoryKind::other: break;
  }
  return kept_tokenizer(start);
}

Path found_tokenizer(const RunConfig& config, const std::string& init_from) {
  if (Path kept = kept_tokenizer(config.run.directory); has_tokenizer(kept))
    return kept;
  if (init_from.empty())
    return "";
  const Path path = tokenizer_of_start(init_from);
  return has_tokenizer(path) ? path : Path();
}

RunTokenizer find_on_root(const RunConfig& config, const std::string& init_from,
                          const std::function<void(const std::string&)>& note) {
  const std::string stated = stated_tokenizer(config.data);
  const bool samples = config.run.sample_interval > 0;
  const bool is_named = !config.data.tokenizer.empty();
  RunTokenizer found;
  if (is_named || !init_from.empty())
    found.token_ids = is_named ? Path(config.data.tokenizer) : tokenizer_of_start(init_from);
  found.source = is_named ? Path(config.data.tokenizer) : found_tokenizer(config, init_from);
  if (found.source.empty() && stated == "byte")
    found.source = stated;
  try {
    if (!found.source.empty())
      found.tokenizer = load_tokenizer(found.source.string());
  } catch (const Error& error) {
    if (is_named) {
      ErrorReport report = error.report();
      report.where = report.where.empty() ? "data.tokenizer" : "data.tokenizer: " + report.where;
      if (error.code() == ExitCode::usage)
        report.todo = "set data.tokenizer to its file or directory";
      throw Error(error.code(), report);
    }
    if (samples)
      throw;
    note(fmt::format("the tokenizer in {} cannot be used: {}", found.source.string(), error.report().what));
  }
  const bool is_kept = found.source == kept_tokenizer(config.run.directory);
  if (found.tokenizer && !stated.empty() && found.tokenizer->name() != stated) {
    if (!is_kept || samples)
      throw Error(ExitCode::data,
                  {.what = "the token files were made with another tokenizer",
                   .where = found.source.string(),
                   .got = "token files of " + stated,
                   .wanted = found.tokenizer->name(),
                   .todo = "name the tokenizer that packed the data in data.tokenizer, or pack the texts "
                           "with this one"});
    found.tokenizer.reset();  // of what the directory was used for before
  }
  if (!found.tokenizer || is_kept || found.source == "byte")
    found.source.clear();
  if (!samples)
    return found;
  if (!found.tokenizer)
    throw Error(ExitCode::usage,
                {.what = "samples of text need a tokenizer",
                 .where = "run.sample_interval",
                 .got = stated.empty() ? "token files that name no tokenizer" : "token files of " + stated,
                 .wanted = "the tokenizer that packed the data",
                 .todo = "set data.tokenizer to its file or directory"});
  for (std::size_t i = 0; i < config.run.sample_prompts.size(); ++i)
    require_vocabulary(config.run.sample_prompts[i], fmt::format("run.sample_prompts[{}]", i), *found.tokenizer,
                       config.model.shape.vocab_size);
  return found;
}

bool holds_tokenizer(const Path& directory, const std::string& name) {
  try {
    return load_tokenizer(directory.string())->name() == name;
  } catch (const Error&) {  // there is none, or none that can be read
    return false;
  }
}

void copy_tokenizer_of_run(const Path& source, const Path& kept) {
  if (std::filesystem::is_directory(source))
    copy_tokenizer(source, kept);
  if (has_tokenizer(kept))
    return;
  const Path file = tokenizer_file(source.string());
  const std::string text = read_file(file, ExitCode::data, LargestFile::tokenizer);
  make_directories(kept);
  write_file_atomically(kept / (is_tokenizer_json(text) ? TokenizerFile::json : TokenizerFile::model), text);
  if (const Path rules = tiktoken_rules(file); std::filesystem::is_regular_file(rules))
    write_file_atomically(tiktoken_rules(kept / TokenizerFile::model),
                          read_file(rules, ExitCode::data, LargestFile::config));
}

}  // namespace

RunTokenizer find_run_tokenizer(const RunConfig& config, const std::string& init_from, const Communicator& world,
                                const std::function<void(const std::string&)>& note) {
  RunTokenizer found;
  attempt_together(world, ExitCode::data, [&] {
    if (world.rank() != 0)
      return;
    found = find_on_root(config, init_from, note);
    if (found.tokenizer)
      found.name = found.tokenizer->name();
  });
  found.name = broadcast_text(world, found.name, 0);
  return found;
}

void RunTokenizer::keep_in(const Path& run) const {
  const Path kept = kept_tokenizer(run);
  if (!source.empty() && !holds_tokenizer(kept, name)) {
    set_aside_if_any(kept);
    copy_tokenizer_of_run(source, kept);
  }
  if (!token_ids.empty())
    keep_token_ids(token_ids, kept);
}

}  // namespace espalier
