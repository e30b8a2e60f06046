// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/text/tokenizer.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// The tokenizer of a run's token files, if it is known.
struct RunTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;  ///< on rank 0
  std::string name;                      ///< on every rank; empty: none is known
  Path source;                           ///< on rank 0: where its files are; empty: it needs none
  Path token_ids;                        ///< on rank 0: a directory that may have ids of special tokens; or empty

  /// On rank 0: copies the files into RUN/tokenizer, where `generate` and `checkpoint export` find them.
  /// @throws Error (write)
  void keep_in(const Path& run) const;
};

/// Finds it: data.tokenizer, else the copy in the run directory, else that of the model in `init_from`, else bytes if
/// the token files are of bytes. Rank 0 reads. Collective. `note` gets a tokenizer that is found and cannot be used.
/// @throws Error, the same on every rank: (data) for token files of another one; (usage) where samples of text are
/// wanted and none is known, or a prompt has a token that the model does not know
RunTokenizer find_run_tokenizer(const RunConfig& config, const std::string& init_from, const Communicator& world,
                                const std::function<void(const std::string&)>& note);

}  // namespace espalier
