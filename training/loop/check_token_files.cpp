// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/check_token_files.hpp"

#include <fmt/format.h>

#include <vector>

#include "io/pack/input_files.hpp"
#include "io/tokens/token_file.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/texts.hpp"
#include "parallel/mesh/host_ranks.hpp"
#include "training/config/data_files.hpp"
#include "training/loop/same_launch.hpp"

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

std::vector<TokenFile> open_all(const RunConfig::Data& data) {
  std::vector<TokenFile> files;
  std::vector<Error> unusable;
  for (const std::vector<std::string>* paths : {&data.train, &data.validation})
    for (const std::string& entry : *paths)
      try {
        for (const std::string& path : expand_token_files(entry))
          files.emplace_back(Path(path));
      } catch (const Error& error) {
        unusable.push_back(error);
      }
  refuse(unusable);
  return files;
}

std::string contents_of(const TokenFile& file) {
  return fmt::format("{}: {} tokens, checksum {}\n", file.info().path.string(), file.num_tokens(),
                     file.fingerprint(false).checksum_text());
}

// One path may lead to copies on each host, or below working directories that differ.
void require_same_files(const std::string& contents, const Communicator& world) {
  const std::vector<int> different = different_ranks(world, contents);
  if (different.empty())
    return;
  const int rank = different.front();
  const std::string wanted = broadcast_text(world, contents, 0);
  const DifferingLines lines = first_differing_lines(wanted, broadcast_text(world, contents, rank));
  throw Error(ExitCode::data,
              {.what = "the ranks see different token files",
               .where = fmt::format("{} beside rank 0", ranks_text(different)),
               .got = fmt::format("{} on rank {}", lines.second, rank),
               .wanted = fmt::format("{} as on rank 0", lines.first),
               .todo = "copy the same files to every host, or name them by an absolute path that all ranks share"});
}

}  // namespace

nlohmann::json check_token_files(const RunConfig& config, const Communicator& world,
                                 const std::function<void(const std::string&)>& note) {
  std::vector<TokenFile> files;
  std::string contents;
  attempt_together(world, ExitCode::data, [&] {
    files = open_all(config.data);
    for (const TokenFile& file : files)
      contents += contents_of(file);
  });
  require_same_files(contents, world);
  const bool first_of_host = host_ranks(world).rank() == 0;
  attempt_together(world, ExitCode::data, [&] {
    if (!first_of_host)
      return;
    for (const TokenFile& file : files)
      file.verify_index();
    if (total_bytes(files) > config.data.check_limit)
      return;
    for (const TokenFile& file : files) {
      file.verify_checksum();
      file.check_vocabulary(config.model.shape.vocab_size);
    }
  });
  return describe_data_files(config, world, note);
}

}  // namespace espalier
