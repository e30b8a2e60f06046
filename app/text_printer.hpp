// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "app/print.hpp"
#include "training/loop/generated_text.hpp"

namespace espalier {

/// Prints texts in order while all of them grow: the first unfinished one token by token, later ones in their turn.
class TextPrinter {
 public:
  void print(std::vector<GeneratedText>& texts);

 private:
  std::size_t at_ = 0;             // the text that is being printed
  std::optional<ModelText> line_;  // if it has begun
};

}  // namespace espalier
