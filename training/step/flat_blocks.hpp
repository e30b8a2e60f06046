// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/parameter.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"

namespace espalier {

/// One array of the training state on this rank, in memory of the device that somebody else owns: the elements of some
/// ranges of the flat arrays, one range after another. Master weights without ZeRO have one range, the whole; moments
/// under ZeRO only what this rank updates.
struct FlatArray {
  std::string group;  ///< in front of the parameters' names: "exp_avg"
  ScalarType type = ScalarType::fp32;
  Tensor<unsigned char, 1> bytes;
  std::vector<IndexRange> held;  ///< of the flat arrays; ascending

  FlatArray() = default;
  template <class View>
  FlatArray(std::string group_, const View& values, std::vector<IndexRange> held_)
      : group(std::move(group_)),
        type(scalar_type_of<typename View::non_const_value_type>()),
        bytes(reinterpret_cast<unsigned char*>(values.data()), values.size() * size_of(type)),
        held(std::move(held_)) {}

  Index size() const { return static_cast<Index>(bytes.extent(0) / size_of(type)); }

  /// @pre T is its type
  template <class T>
  Tensor<T, 1> values() const {
    ESPALIER_ASSERT(type == scalar_type_of<T>(), group + " is of another type");
    return Tensor<T, 1>(reinterpret_cast<T*>(bytes.data()), size());
  }
};

template <class T>
FlatArray weights_of(const ParameterStore<T>& store) {
  return {weights_group, store.weights().values(), store.weights().held()};
}

/// The boxes of logical tensors that `unique`, runs of the flat arrays within array.held, covers: what this rank
/// writes. They point into `host`, a copy of the array. Padding between parameters is in no box.
std::vector<TensorBlock> blocks_to_write(const std::vector<Parameter>& parameters, const FlatArray& array,
                                         const void* host, const std::vector<IndexRange>& unique);

/// The tensor with the first number of the array that is not finite, as "exp_avg/h.3.mlp.up.weight"; empty: none.
/// @pre it is of a state type
std::string not_finite_tensor(const ExecSpace& exec, const std::vector<Parameter>& parameters, const FlatArray& array);

/// The stored name of the tensor that has this element of the array; empty behind the last.
std::string tensor_at(const std::vector<Parameter>& parameters, const FlatArray& array, Index element);

/// Reads boxes of stored tensors ("weights/h.3.mlp.up.weight") from wherever they lie.
using ReadBoxes = std::function<void(std::span<const WantedBox>)>;

/// Fills the arrays by one call of `read`.
void read_flat_arrays(const ExecSpace& exec, const ReadBoxes& read, const std::vector<Parameter>& parameters,
                      const std::vector<FlatArray>& arrays);

/// Fills the arrays from a checkpoint of any layout. A stored block that several arrays need (weights and their master
/// weights) is read once. @throws Error (checkpoint), also for numbers that are not finite in
/// arrays of the state type.
void read_flat_arrays(const ExecSpace& exec, const CheckpointReader& checkpoint,
                      const std::vector<Parameter>& parameters, const std::vector<FlatArray>& arrays);

}  // namespace espalier
