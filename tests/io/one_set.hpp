// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/tokens/token_loader.hpp"

namespace espalier::test {

/// A loader of one set of all files.
inline TokenLoader one_set_loader(std::vector<TokenFile> files, const LoaderOptions& options) {
  std::vector<SampleIndex> sets;
  sets.emplace_back(whole_files(std::move(files), options.document_end), options.samples());
  return {std::move(sets), std::nullopt, options};
}

}  // namespace espalier::test
