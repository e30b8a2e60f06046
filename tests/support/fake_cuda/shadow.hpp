// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "tests/support/fake_cuda/clocks.hpp"

namespace fake_cuda {

/// How memory is accessed. A kernel that is handed an address may read or write it: nobody knows which.
enum class Access { read, write, kernel };

/// Which accesses the bytes of one allocation have seen: the last write, and all since.
class Shadow {
 public:
  /// Reports each earlier access that is a race with this one.
  void touch(const std::shared_ptr<const Actor>& actor, std::size_t offset, std::size_t bytes, Access access);

 private:
  struct Touch {
    std::shared_ptr<const Actor> actor;
    Access access;
  };
  using History = std::vector<Touch>;

  void split(std::size_t offset);

  std::map<std::size_t, History> pieces_{{0, {}}};  // each up to the next one's offset
};

/// Reported when a race is found: nothing orders `now` after `before`.
struct Race {
  const Actor &before, &now;
  Access before_access, now_access;
  const Shadow* shadow;
  std::size_t offset;
};
void tell_race(const Race& race);

}  // namespace fake_cuda
