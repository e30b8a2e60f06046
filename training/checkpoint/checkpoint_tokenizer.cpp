// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/checkpoint_tokenizer.hpp"

#include <fmt/format.h>

#include "io/records/run_paths.hpp"
#include "training/checkpoint/stored_state.hpp"

namespace espalier {

Path tokenizer_beside(const Path& checkpoint) {
  Path path = std::filesystem::absolute(checkpoint).lexically_normal();
  if (!path.has_filename())  // it ended with a slash
    path = path.parent_path();
  return path.parent_path().parent_path() / RunFolder::tokenizer;
}

std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointReader& checkpoint, const std::string& given) {
  const std::string name = read_state(checkpoint).tokenizer;
  const Path beside = tokenizer_beside(checkpoint.path());
  if (given.empty() && name != "byte" && !has_tokenizer(beside))
    throw Error(ExitCode::checkpoint, {.what = "the tokenizer of a checkpoint is not known",
                                       .where = checkpoint.path().string(),
                                       .got = name.empty() ? "a checkpoint that names none" : name,
                                       .wanted = fmt::format("byte, or a tokenizer in {}", beside.string()),
                                       .todo = "name the tokenizer's file: --tokenizer FILE"});
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(!given.empty()   ? given
                                                        : name == "byte" ? name
                                                                         : beside.string());
  if (!name.empty() && tokenizer->name() != name)
    throw Error(ExitCode::checkpoint, {.what = "the checkpoint's data were made with another tokenizer",
                                       .where = given.empty() ? beside.string() : "--tokenizer " + given,
                                       .got = tokenizer->name(),
                                       .wanted = name,
                                       .todo = "name the tokenizer that packed the data: --tokenizer FILE"});
  return tokenizer;
}

}  // namespace espalier
