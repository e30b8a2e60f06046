// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/parameter.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"

namespace espalier {

/// One array of the training state on this rank: what belongs to some runs of the store's flat arrays, one after
/// another. Masters hold one run, all of it; moments under ZeRO-1 only what this rank updates.
template <class S>
struct FlatArray {
  std::string group;  ///< in front of the parameters' names: "exp_avg"
  Tensor<S, 1> data;
  std::vector<IndexRange> held;  ///< of the flat arrays; ascending
};

/// "exp_avg/h.3.mlp.up.weight"
std::string stored_name(const std::string& group, const Parameter& parameter);

/// The boxes of logical tensors that `counted`, runs of the flat arrays within `held`, covers: what this rank writes.
/// They point into `host`, where the elements of the held runs lie one after another. Padding between parameters is in
/// no box.
template <class S>
std::vector<TensorBlock> blocks_to_write(const std::vector<Parameter>& parameters, const std::string& group,
                                         const S* host, const std::vector<IndexRange>& held,
                                         const std::vector<IndexRange>& counted);

/// The tensor of the first number in the array that is not finite, as "exp_avg/h.3.mlp.up.weight"; empty: all are.
template <class S>
std::string not_finite_tensor(const ExecSpace& exec, const std::vector<Parameter>& parameters,
                              const FlatArray<S>& array);

/// The stored name of the tensor with element `place` of the array's data; empty behind the last.
template <class S>
std::string tensor_at(const std::vector<Parameter>& parameters, const FlatArray<S>& array, Index place);

/// Reads boxes of stored tensors ("weights/h.3.mlp.up.weight") from wherever they lie.
using ReadBoxes = std::function<void(std::span<const WantedBox>)>;

/// Fills all that the arrays hold by one call of `read`.
template <class... S>
void read_flat_arrays(const ExecSpace& exec, const ReadBoxes& read, const std::vector<Parameter>& parameters,
                      const FlatArray<S>&... arrays);

/// Fills all that the arrays hold, whatever layout wrote the checkpoint. A stored block that several of them want,
/// weights and their masters, is read once. @throws Error (checkpoint), also for numbers that are not finite in arrays
/// of the state type.
template <class... S>
void read_flat_arrays(const ExecSpace& exec, const CheckpointReader& checkpoint,
                      const std::vector<Parameter>& parameters, const FlatArray<S>&... arrays);

}  // namespace espalier
