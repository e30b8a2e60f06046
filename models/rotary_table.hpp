// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/rotary.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// Sines and cosines of the positions of a sequence, which all attention layers of a rank share.
template <class T>
class RotaryTable {
 public:
  explicit RotaryTable(const ModelConfig& config) : config_(config.rotary) { config_.size = config.rotary_size(); }

  /// Fills `table` and uses it from now on; whoever allocated it keeps it. HR = 0: positions are not rotary.
  /// @param longest sequence that the frequencies are for, where they depend on it
  void fill(const ExecSpace& exec, const Tensor<State<T>, 2>& table /* (T, HR) */, Index longest) {
    table_ = table;
    if (table.extent(1) > 0)
      make_rotary_table<State<T>>(exec, table, rotary_frequencies(config_, longest));
  }

  /// Rotates the first `heads` heads of each row.
  void forward(const ExecSpace& exec, const Tensor<T, 2>& rows /* (N, heads*HS or more) */, Index heads,
               Index head_size, const RowPositions& positions) const {
    if (config_.size > 0)
      rotary_forward<T>(exec, rows, heads, head_size, table_, positions);
  }
  /// Rotates gradients back.
  void backward(const ExecSpace& exec, const Tensor<T, 2>& drows /* (N, heads*HS or more) */, Index heads,
                Index head_size, const RowPositions& positions) const {
    if (config_.size > 0)
      rotary_backward<T>(exec, drows, heads, head_size, table_, positions);
  }

 private:
  RotaryConfig config_;
  Tensor<State<T>, 2> table_;  // (T, HR)
};

}  // namespace espalier
