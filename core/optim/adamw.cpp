// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/optim/adamw.hpp"

#include <cmath>

#include "core/vector_math.hpp"

namespace espalier {

namespace {

// Decoupled weight decay, algorithm 2 of Loshchilov and Hutter, 2019, with the corrections of bias in the constants.
template <class T>
struct Update {
  using S = State<T>;
  S beta1, beta2, eps, rate, correction, keep;
  T* weights;
  S *masters, *exp_avg, *exp_avg_sq;  // masters: the weights where they have the type of the state
  const S* gradients;

  KOKKOS_INLINE_FUNCTION void apply(S& master, S& m, S& v, S g) const {
    m = beta1 * m + (S(1) - beta1) * g;
    v = beta2 * v + (S(1) - beta2) * g * g;
    master = keep * master - rate * m / (compat::sqrt(v) * correction + eps);
  }
  KOKKOS_INLINE_FUNCTION void element(Index i, S factor) const {
    S master = masters[i], m = exp_avg[i], v = exp_avg_sq[i];
    apply(master, m, v, factor * gradients[i]);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    masters[i] = master;
    weights[i] = static_cast<T>(master);
  }
  static constexpr Index width = 4;  // 16 bytes of fp32
  KOKKOS_INLINE_FUNCTION void pack(Index p, S factor) const {
    using States = Pack<S, width>;
    States master = impl::pack_at<width>(masters, p), m = impl::pack_at<width>(exp_avg, p),
           v = impl::pack_at<width>(exp_avg_sq, p);
    const States g = impl::pack_at<width>(gradients, p);
    Pack<T, width> rounded;
    for (int k = 0; k < width; ++k) {
      apply(master.values[k], m.values[k], v.values[k], factor * g.values[k]);
      rounded.values[k] = static_cast<T>(master.values[k]);
    }
    impl::put_pack(exp_avg, p, m);
    impl::put_pack(exp_avg_sq, p, v);
    impl::put_pack(masters, p, master);
    impl::put_pack(weights, p, rounded);
  }
};

// On hosts: strips that are long enough to vectorise, and short enough to balance.
template <class T>
void adamw_strips(const ExecSpace& exec, const Update<T>& update, const Tensor<double, 0>& clip, Index size) {
  constexpr Index strip = 1024;
  Kokkos::parallel_for(
      "espalier::core::adamw_update", RangePolicy(exec, 0, (size + strip - 1) / strip), KOKKOS_LAMBDA(const Index s) {
        const Update<T> own = update;  // so that no store can change its constants
        const auto factor = static_cast<State<T>>(clip());
        const Index last = smaller((s + 1) * strip, size);
#pragma GCC ivdep
        for (Index i = s * strip; i < last; ++i)
          own.element(i, factor);
      });
}

// On GPUs: packs where all arrays are aligned to them, and single elements.
template <class T>
void adamw_packs(const ExecSpace& exec, const Update<T>& update, const Tensor<double, 0>& clip, Index size) {
  constexpr Index width = Update<T>::width;
  const Index packs =
      impl::packs_of<width>(size, update.weights, update.masters, update.exp_avg, update.exp_avg_sq, update.gradients);
  const Index done = packs * width;
  Kokkos::parallel_for(
      "espalier::core::adamw_update", RangePolicy(exec, 0, packs + size - done), KOKKOS_LAMBDA(const Index i) {
        const auto factor = static_cast<State<T>>(clip());
        if (i < packs)
          update.pack(i, factor);
        else
          update.element(done + i - packs, factor);
      });
}

}  // namespace

template <class T>
void adamw_update(const ExecSpace& exec, Tensor<T, 1> weights, Tensor<State<T>, 1> masters, Tensor<State<T>, 1> exp_avg,
                  Tensor<State<T>, 1> exp_avg_sq, Tensor<State<T>, 1> gradients, Index offset, Index moment_offset,
                  Index size, const AdamWConfig& config, double learning_rate, double weight_decay,
                  Tensor<double, 0> clip, Index step) {
  using S = State<T>;
  Update<T> update{.beta1 = static_cast<S>(config.beta1),
                   .beta2 = static_cast<S>(config.beta2),
                   .eps = static_cast<S>(config.eps),
                   .rate = static_cast<S>(learning_rate / (1 - std::pow(config.beta1, static_cast<double>(step)))),
                   .correction = static_cast<S>(1 / std::sqrt(1 - std::pow(config.beta2, static_cast<double>(step)))),
                   .keep = static_cast<S>(1 - learning_rate * weight_decay),
                   .weights = weights.data() + offset,
                   .masters = nullptr,
                   .exp_avg = exp_avg.data() + moment_offset,
                   .exp_avg_sq = exp_avg_sq.data() + moment_offset,
                   .gradients = gradients.data() + offset};
  if constexpr (has_masters<T>)
    update.masters = masters.data() + moment_offset;
  else
    update.masters = update.weights;
  if constexpr (exec_is_host)
    adamw_strips(exec, update, clip, size);
  else
    adamw_packs(exec, update, clip, size);
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
