// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/logits_to_host.hpp"

#include <algorithm>
#include <utility>

#include "core/kokkos_compat.hpp"
#include "core/parameter_spec.hpp"
#include "parallel/collectives/collectives.hpp"

namespace espalier {
namespace {

// Shares of the vocabulary, one of which has a column more than another, side by side.
std::vector<float> gather_columns(std::vector<float> local /* (rows, V/tp) */, Index rows, Index vocab_size,
                                  const Communicator& tensor) {
  const auto columns_of = [&](int rank) { return Shard{0, rank, tensor.size()}.range(vocab_size); };
  local.resize(static_cast<std::size_t>(columns_of(0).size() * rows));
  std::vector<float> shares(local.size() * static_cast<std::size_t>(tensor.size()));  // (tp, rows * ceil(V/tp))
  all_gather(tensor, std::span<float>(shares), std::span<const float>(local));
  std::vector<float> all(static_cast<std::size_t>(rows * vocab_size));
  for (int rank = 0; rank < tensor.size(); ++rank) {
    const IndexRange columns = columns_of(rank);
    for (Index row = 0; row < rows; ++row)
      std::copy_n(shares.begin() + rank * std::ssize(local) + row * columns.size(), columns.size(),
                  all.begin() + row * vocab_size + columns.begin);
  }
  return all;
}

}  // namespace

template <class T>
std::vector<float> logits_to_host(const ExecSpace& exec, const Matrix<T>& logits, Index vocab_size,
                                  const Communicator* tensor) {
  const Tensor<T, 1> memory(logits.data, (logits.rows - 1) * logits.stride + logits.cols);  // rows may be padded
  const auto host = Kokkos::create_mirror_view(memory);
  Kokkos::deep_copy(exec, host, memory);
  compat::fence(exec, "espalier::logits_to_host: the logits are read on the host");
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(logits.rows * logits.cols));
  for (Index row = 0; row < logits.rows; ++row)
    for (Index column = 0; column < logits.cols; ++column)
      values.push_back(static_cast<float>(host(row * logits.stride + column)));
  return tensor != nullptr && tensor->size() > 1 ? gather_columns(std::move(values), logits.rows, vocab_size, *tensor)
                                                 : values;
}

#define ESPALIER_INSTANTIATE(T) \
  template std::vector<float> logits_to_host<T>(const ExecSpace&, const Matrix<T>&, Index, const Communicator*);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
