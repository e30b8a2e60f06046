// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "io/partial_file.hpp"
#include "io/tokens/megatron_index.hpp"

namespace espalier {

/// PREFIX.bin and PREFIX.idx; a prefix that ends with one of these is taken without.
MegatronPair megatron_output(Path prefix);

/// Ask before the work whose result it is. @throws Error (write) where one of the files exists and is not empty
void require_new_megatron(const MegatronPair& pair);

/// Writes a Megatron data set piece by piece (io/tokens/megatron_index.hpp). A document is one sequence; one with more
/// tokens than a sequence may have is several. Both files appear under their names only by finish(). The memory needed
/// does not depend on the number of documents.
class MegatronWriter {
 public:
  /// @param bytes_per_token 2: uint16; 4: int32
  /// @throws Error (write) as require_new_megatron() and PartialFile
  MegatronWriter(const MegatronPair& pair, Index bytes_per_token,
                 Index longest_sequence = std::numeric_limits<std::int32_t>::max());

  /// Tokens of the document that is written now.
  void append(std::span<const TokenId> tokens);
  void end_document();
  void finish();
  Index num_tokens() const { return num_tokens_; }
  Index num_documents() const { return num_sequences_ - static_cast<Index>(continued_.size()); }

 private:
  void end_sequence();
  std::string header() const;

  MegatronPair pair_;
  Index bytes_per_token_;
  Index longest_sequence_;
  PartialFile index_;
  PartialFile tokens_;
  std::vector<unsigned char> token_buffer_;
  std::vector<std::int32_t> lengths_;  // not yet written
  std::vector<Index> continued_;       // sequences that continue the document of the one before
  Index num_tokens_ = 0;
  Index num_sequences_ = 0;
  Index in_sequence_ = 0;  // tokens of the sequence that is written now
};

}  // namespace espalier
