// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/check_token_files.hpp"

#include "io/token_file.hpp"
#include "parallel/agreement.hpp"
#include "parallel/host_ranks.hpp"

namespace espalier {

void check_token_files(const RunConfig& config, const Communicator& world) {
  const bool first_of_host = host_ranks(world).rank() == 0;
  attempt_together(world, ExitCode::data, [&] {
    if (!first_of_host)
      return;
    std::vector<TokenFile> files;
    Index bytes = 0;
    for (const std::vector<std::string>* paths : {&config.data.train, &config.data.validation})
      for (const std::string& path : *paths) {
        const TokenFileInfo& info = files.emplace_back(Path(path)).info();
        bytes += info.payload_offset + info.num_tokens * info.bytes_per_token;
      }
    if (bytes > config.data.check_limit)
      return;
    for (const TokenFile& file : files) {
      file.verify_checksum();
      file.check_vocabulary(config.model.shape.vocab_size);
    }
  });
}

}  // namespace espalier
