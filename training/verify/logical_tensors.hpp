// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/parameter_spec.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// A logical tensor in host memory, whole, on every rank: what layouts are compared by.
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
  std::vector<IndexRange> counted;    ///< flat ranges in which this rank stands for all that hold the same
  std::vector<double> values;         ///< flat
};

/// Puts tensors together from the parts of all ranks, by few messages. Collective over `world`.
void assemble(const Communicator& world, const ShardedCopy& copy, std::span<LogicalTensor> tensors);

/// 2-norm of the difference between what this rank holds of the tensor, counted or not, and the tensor.
double local_deviation(const ShardedCopy& copy, const LogicalTensor& tensor, const std::vector<IndexRange>& held);

/// Writes this rank's shard of the tensor into a flat array laid out by `parameters`.
void scatter(const LogicalTensor& tensor, const std::vector<Parameter>& parameters, std::vector<double>& flat);

double norm_of(const std::vector<double>& values);
double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace espalier
