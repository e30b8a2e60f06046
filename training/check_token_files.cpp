// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/check_token_files.hpp"

#include <fmt/format.h>

#include <vector>

#include "io/token_file.hpp"
#include "parallel/agreement.hpp"
#include "parallel/host_ranks.hpp"

namespace espalier {

namespace {

// All of them at once.
void refuse(const std::vector<Error>& unusable) {
  if (unusable.empty())
    return;
  if (unusable.size() == 1)
    throw unusable.front();
  std::string lines;
  for (const Error& error : unusable)
    lines += fmt::format("\n  {}: {}; {}", error.report().where, error.report().what, error.report().got);
  throw Error(
      ExitCode::data,
      {.what = fmt::format("{} token files cannot be used:{}", unusable.size(), lines),
       .where = "data.train, data.validation",
       .todo = "check the paths, relative ones start at the working directory; `espalier data inspect` says more"});
}

}  // namespace

void check_token_files(const RunConfig& config, const Communicator& world) {
  const bool first_of_host = host_ranks(world).rank() == 0;
  attempt_together(world, ExitCode::data, [&] {
    if (!first_of_host)
      return;
    std::vector<TokenFile> files;
    std::vector<Error> unusable;
    Index bytes = 0;
    for (const std::vector<std::string>* paths : {&config.data.train, &config.data.validation})
      for (const std::string& path : *paths)
        try {
          const TokenFileInfo& info = files.emplace_back(Path(path)).info();
          bytes += info.payload_offset + info.num_tokens * info.bytes_per_token;
        } catch (const Error& error) {
          unusable.push_back(error);
        }
    refuse(unusable);
    if (bytes > config.data.check_limit)
      return;
    for (const TokenFile& file : files) {
      file.verify_checksum();
      file.check_vocabulary(config.model.shape.vocab_size);
    }
  });
}

}  // namespace espalier
