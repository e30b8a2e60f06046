// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct ConfigDifference {
  std::string key;        ///< "optimizer.learning_rate"
  std::string old_value;  ///< as TOML; empty: absent
  std::string new_value;
};

/// Keys whose values differ between two configs, sorted; comments and order do not count.
std::vector<ConfigDifference> diff_configs(std::string_view old_text, std::string_view new_text);

}  // namespace espalier
