// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/optim/adamw.hpp"

#include <cmath>

#include "core/vector_math.hpp"

namespace espalier {

template <class T>
void adamw_update(const ExecSpace& exec, Tensor<T, 1> weights, Tensor<State<T>, 1> masters, Tensor<State<T>, 1> exp_avg,
                  Tensor<State<T>, 1> exp_avg_sq, Tensor<State<T>, 1> gradients, Index offset, Index moment_offset,
                  Index size, const AdamWConfig& config, double learning_rate, double weight_decay,
                  Tensor<double, 0> clip, Index step) {
  using S = State<T>;
  const S beta1 = static_cast<S>(config.beta1);
  const S beta2 = static_cast<S>(config.beta2);
  const S eps = static_cast<S>(config.eps);
  const S rate = static_cast<S>(learning_rate / (1 - std::pow(config.beta1, static_cast<double>(step))));
  const S correction = static_cast<S>(1 / std::sqrt(1 - std::pow(config.beta2, static_cast<double>(step))));
  const S keep = static_cast<S>(1 - learning_rate * weight_decay);
  T* const w = weights.data() + offset;
  S* master = nullptr;
  if constexpr (has_masters<T>)
    master = masters.data() + moment_offset;
  else
    master = w;
  S* const m = exp_avg.data() + moment_offset;
  S* const v = exp_avg_sq.data() + moment_offset;
  const S* const gradient = gradients.data() + offset;
  constexpr Index strip = exec_is_host ? 1024 : 1;  // long enough to vectorise, short enough to balance
  Kokkos::parallel_for(
      "espalier::core::adamw_update", RangePolicy(exec, 0, (size + strip - 1) / strip), KOKKOS_LAMBDA(const Index s) {
        const S factor = static_cast<S>(clip());
        const Index last = (s + 1) * strip < size ? (s + 1) * strip : size;
#pragma GCC ivdep
        for (Index i = s * strip; i < last; ++i) {
          const S g = factor * gradient[i];
          const S first = beta1 * m[i] + (S(1) - beta1) * g;
          const S second = beta2 * v[i] + (S(1) - beta2) * g * g;
          m[i] = first;
          v[i] = second;
          const S updated = keep * master[i] - rate * first / (compat::sqrt(second) * correction + eps);
          master[i] = updated;
          w[i] = static_cast<T>(updated);
        }
      });
}

template <class T>
AdamW<T>::AdamW(const ParameterStore<T>& parameters, const AdamWConfig& config,
                std::optional<std::vector<IndexRange>> owned)
    : parameters_(&parameters),
      config_(config),
      owned_(owned ? std::move(*owned) : std::vector<IndexRange>{{0, parameters.flat_size()}}) {
  Index num_moments = 0;
  for (const IndexRange& range : owned_) {
    moment_starts_.push_back(num_moments);
    for (const Segment& segment : parameters.segments()) {
      const IndexRange part = intersection(range, segment.flat_range());
      if (part.size() > 0)
        pieces_.push_back({part.begin, num_moments + part.begin - range.begin, part.size(), segment.weight_decay});
    }
    num_moments += range.size();
  }
  if constexpr (has_masters<T>)
    masters_ = allocate<State<T>>(Category::optimizer, "masters", num_moments);
  exp_avg_ = allocate<State<T>>(Category::optimizer, "exp_avg", num_moments);
  exp_avg_sq_ = allocate<State<T>>(Category::optimizer, "exp_avg_sq", num_moments);
}

template <class T>
void AdamW<T>::initialize_masters(const ExecSpace& exec, std::uint64_t seed) const {
  if constexpr (has_masters<T>)
    for (std::size_t i = 0; i < owned_.size(); ++i)
      parameters_->initial_values(exec, seed, owned_[i],
                                  Tensor<State<T>, 1>(masters_.data() + moment_starts_[i], owned_[i].size()));
}

template <class T>
void AdamW<T>::step(const ExecSpace& exec, double learning_rate, Tensor<double, 0> clip, Index step) const {
  for (const Piece& piece : pieces_)
    adamw_update<T>(exec, parameters_->flat_weights(), masters_, exp_avg_, exp_avg_sq_, parameters_->flat_gradients(),
                    piece.offset, piece.moment_offset, piece.size, config_, learning_rate,
                    piece.weight_decay ? config_.weight_decay : 0.0, clip, step);
}

#define ESPALIER_INSTANTIATE(T)                                                                                    \
  template class AdamW<T>;                                                                                         \
  template void adamw_update<T>(const ExecSpace&, Tensor<T, 1>, Tensor<State<T>, 1>, Tensor<State<T>, 1>,          \
                                Tensor<State<T>, 1>, Tensor<State<T>, 1>, Index, Index, Index, const AdamWConfig&, \
                                double, double, Tensor<double, 0>, Index);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
