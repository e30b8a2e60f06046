// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/parameter_spec.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/step/trainer.hpp"

/// The flat arrays of a trainer in host memory, as comparisons of layouts read and write them.

namespace espalier {

/// A whole logical tensor in host memory, on every rank: layouts are compared by these.
struct LogicalTensor {
  std::string name;
  std::vector<Index> shape;
  std::vector<double> values;  ///< row-major
};

/// Names and shapes of all tensors of a model, in flat order of one rank; values are empty.
std::vector<LogicalTensor> logical_tensors(const std::vector<Parameter>& whole_model);

/// The same in groups of some millions of elements, or of one tensor, to be put together one group at a time.
std::vector<std::vector<LogicalTensor>> in_groups(std::vector<LogicalTensor> tensors);

/// A copy of one flat array of a layout, each rank's part in its host memory.
struct ShardedCopy {
  std::vector<Parameter> parameters;  ///< none on a rank that takes no part in the layout
  std::vector<IndexRange> unique;     ///< the unique ranges of this rank
  std::vector<double> values;         ///< flat
};

/// Assembles tensors from the parts of all ranks, with few messages. Collective over `world`.
void assemble(const Communicator& world, const ShardedCopy& copy, std::span<LogicalTensor> tensors);

/// 2-norm of the difference between what this rank holds of the tensor, unique or not, and the tensor.
double local_deviation(const ShardedCopy& copy, const LogicalTensor& tensor, const std::vector<IndexRange>& held);

/// Writes this rank's shard of the tensor into a flat array laid out by `parameters`.
void scatter(const LogicalTensor& tensor, const std::vector<Parameter>& parameters, std::vector<double>& flat);

double norm_of(const std::vector<double>& values);
double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b);

/// Scatters the held ranges of an array of the device into an array of flat_size, which is zero elsewhere.
std::vector<double> scattered(const FlatArray& array, Index flat_size);

/// The inverse, rounded to the array's type.
void pack(const std::vector<double>& flat, const FlatArray& array);

/// The master weights (or weights) in the layout of the flat arrays, in fp32 or fp64; zero where this rank keeps none.
std::vector<double> master_weights(const Trainer& trainer);

/// `values` are of this rank's flat arrays; `owned`: true only where this rank updates them.
ShardedCopy copy_of(const Trainer& trainer, std::vector<double> values, bool owned);

}  // namespace espalier
