// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// A rule of a model or a layout that is broken.
struct BrokenRule {
  std::string section;              ///< of a config: "parallel"
  std::string key;                  ///< of it, which the sentence begins with: "tensor"
  std::string message;              ///< "8 cannot share num_heads 12 (nearest: tensor 6 or 12, num_heads 8 or 16)"
  std::vector<std::string> others;  ///< that the rule is about, too: "model.num_heads"

  /// With the section where the key alone says little: "rotary.factor is 0, wanted at least 1".
  std::string sentence() const { return (section == "rotary" ? section + "." : "") + key + " " + message; }
};

}  // namespace espalier
