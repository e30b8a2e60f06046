// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/arena.hpp"
#include "models/recompute.hpp"

namespace espalier {

/// Visits a list of saved arrays and allocates those that `chosen` selects from the arena; the others stay.
template <class Chosen>
class TakeArrays {
 public:
  TakeArrays(Arena& arena, Chosen chosen) : arena_(arena), chosen_(chosen) {}
  template <class View, class... Extents>
  void operator()(View& view, const SavedArray& array, Extents... extents) {
    if (chosen_(array))
      view = arena_.template take<typename View::value_type>(extents...);
  }

 private:
  Arena& arena_;
  Chosen chosen_;
};

}  // namespace espalier
