// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace espalier {

/// Names a phase for profiling tools while it lives; exceptions leave no region open.
class Region {
 public:
  explicit Region(const std::string& label);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
};

}  // namespace espalier
