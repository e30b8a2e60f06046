// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/pack/documents.hpp"
#include "io/pack/pack.hpp"

namespace espalier {

/// Collects, while text is packed, where it contradicts the options: each is a warning.
class PackWarnings {
 public:
  explicit PackWarnings(const PackOptions& options) : options_(options) {}

  void add(const Document& document);
  /// @param begin the first bytes of the file's text
  void add(const Path& path, std::string_view begin, Index num_separators);

  /// @param files that were packed, to look for a separator that the user may have meant
  std::vector<std::string> warnings(const std::vector<Path>& files, const PackSummary& summary);

 private:
  /// Files of which something is true.
  struct Some {
    Index count = 0;
    Path first;
    void add(const Path& path);
    std::string text() const;  ///< "3 files (the first is a.txt)"
  };

  void warn_of_copies(std::vector<std::string>& warnings);

  const PackOptions& options_;
  Index num_separators_ = 0;
  Some empty_;
  Some not_utf8_;
  Some separated_;  // with a usual separator, and none is given
  Some marked_up_;
  std::string markup_;
  std::string what_to_do_;
  std::vector<std::uint64_t> hashes_;  // of documents, up to a number
};

}  // namespace espalier
