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
  S *master_weights, *exp_avg, *exp_avg_sq;  // master_weights: the weights where they have the type of the state
  const S* gradients;

  KOKKOS_INLINE_FUNCTION void apply(S& master, S& m, S& v, S g) const {
    m = multiply_add(beta1, m, (S(1) - beta1) * g);
    v = multiply_add(beta2, v, (S(1) - beta2) * g * g);
    master = multiply_add(keep, master, -(rate * m / multiply_add(compat::sqrt(v), correction, eps)));
  }
  KOKKOS_INLINE_FUNCTION void element(Index i, S factor) const {
    S master = master_weights[i], m = exp_avg[i], v = exp_avg_sq[i];
    apply(master, m, v, factor * gradients[i]);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master_weights[i] = master;
    weights[i] = static_cast<T>(master);
  }
  static constexpr Index width = 4;  // 16 bytes of fp32
  KOKKOS_INLINE_FUNCTION void pack(Index p, S factor) const {
    using States = Pack<S, width>;
    States master = impl::pack_at<width>(master_weights, p), m = impl::pack_at<width>(exp_avg, p),
           v = impl::pack_at<width>(exp_avg_sq, p);
    const States g = impl::pack_at<width>(gradients, p);
    Pack<T, width> rounded;
    for (int k = 0; k < width; ++k) {
      apply(master.values[k], m.values[k], v.values[k], factor * g.values[k]);
      rounded.values[k] = static_cast<T>(master.values[k]);
    }
    impl::put_pack(exp_avg, p, m);
    impl::put_pack(exp_avg_sq, p, v);
    impl::put_pack(master_weights, p, master);
    impl::put_pack(weights, p, rounded);
  }
};

// A vectorised loop on hosts; on GPUs packs where all arrays are aligned to them, and single elements.
template <class T>
KOKKOS_INLINE_FUNCTION void update_part(const TeamMember& team, const Update<T>& update, Index size, State<T> factor) {
  constexpr Index width = Update<T>::width;
  const Index packs = exec_is_host ? 0
                                   : impl::packs_of<width>(size, update.weights, update.master_weights, update.exp_avg,
                                                           update.exp_avg_sq, update.gradients);
  const Index done = packs * width;
  row_for(team, packs, [&](const Index p) { update.pack(p, factor); });
  row_for(team, size - done, [&](const Index i) { update.element(done + i, factor); });
}

}  // namespace

Tensor<Index, 1> make_adamw_parts(const std::vector<AdamWPart>& parts) {
  constexpr Index most = Index{1} << 13;  // elements: some microseconds of work
  std::vector<Index> numbers;
  for (const AdamWPart& part : parts)
    for (Index done = 0; done < part.size; done += most)
      for (const Index number : {part.weight + done, part.gradient + done, part.moment + done,
                                 smaller(most, part.size - done), Index{part.weight_decay}})
        numbers.push_back(number);
  auto result = allocate<Index>(Category::workspace, "adamw_parts", static_cast<Index>(numbers.size()));
  if (result.data() != nullptr)
    Kokkos::deep_copy(result,
                      Kokkos::View<const Index*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                          numbers.data(), numbers.size()));
  return result;
}

template <class T>
void adamw_update(const ExecSpace& exec, Tensor<T, 1> weights, Tensor<State<T>, 1> master_weights,
                  Tensor<State<T>, 1> exp_avg, Tensor<State<T>, 1> exp_avg_sq, Tensor<State<T>, 1> gradients,
                  Tensor<Index, 1> parts, const AdamWConfig& config, double learning_rate, Tensor<double, 0> clip,
                  Index step) {
  using S = State<T>;
  const auto steps = static_cast<double>(step);
  const Update<T> whole{.beta1 = static_cast<S>(config.beta1),
                        .beta2 = static_cast<S>(config.beta2),
                        .eps = static_cast<S>(config.eps),
                        .rate = static_cast<S>(learning_rate / (1 - std::pow(config.beta1, steps))),
                        .correction = static_cast<S>(1 / std::sqrt(1 - std::pow(config.beta2, steps))),
                        .keep = 1,
                        .weights = weights.data(),
                        .master_weights = master_weights.data(),
                        .exp_avg = exp_avg.data(),
                        .exp_avg_sq = exp_avg_sq.data(),
                        .gradients = gradients.data()};
  const S kept_by_decay = static_cast<S>(1 - learning_rate * config.weight_decay);
  Kokkos::parallel_for(
      "espalier::core::adamw_update", row_policy(exec, static_cast<Index>(parts.extent(0)) / 5),
      KOKKOS_LAMBDA(const TeamMember& team) {
        if (clip() == 0)
          return;
        const Index* const numbers = &parts(5 * Index{team.league_rank()});
        const AdamWPart part{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] != 0};
        Update<T> update = whole;  // so that no store can change its constants
        if (part.weight_decay)
          update.keep = kept_by_decay;
        update.weights += part.weight;
        update.gradients += part.gradient;
        update.exp_avg += part.moment;
        update.exp_avg_sq += part.moment;
        if constexpr (has_master_weights<T>)
          update.master_weights += part.moment;
        else
          update.master_weights = update.weights;
        update_part<T>(team, update, part.size, static_cast<S>(clip()));
      });
}

template <class T>
AdamW<T>::AdamW(const ParameterStore<T>& parameters, const AdamWConfig& config,
                std::optional<std::vector<IndexRange>> owned)
    : parameters_(&parameters),
      config_(config),
      owned_(owned ? std::move(*owned) : std::vector<IndexRange>{{0, parameters.flat_size()}}) {
  Index num_moments = 0;
  std::vector<AdamWPart> parts;
  for (const IndexRange& range : owned_) {
    moment_starts_.push_back(num_moments);
    for (const Segment& segment : parameters.segments()) {
      const IndexRange part = intersection(range, segment.flat_range());
      if (part.size() > 0)
        parts.push_back({.weight = parameters.weights().offset_of(part.begin),
                         .gradient = parameters.gradients().offset_of(part.begin),
                         .moment = num_moments + part.begin - range.begin,
                         .size = part.size(),
                         .weight_decay = segment.weight_decay});
    }
    num_moments += range.size();
  }
  parts_ = make_adamw_parts(parts);
  if constexpr (has_master_weights<T>)
    master_weights_ = allocate<State<T>>(Category::optimizer, "master_weights", num_moments);
  exp_avg_ = allocate<State<T>>(Category::optimizer, "exp_avg", num_moments);
  exp_avg_sq_ = allocate<State<T>>(Category::optimizer, "exp_avg_sq", num_moments);
}

template <class T>
void AdamW<T>::initialize_master_weights(const ExecSpace& exec, std::uint64_t seed) const {
  if constexpr (has_master_weights<T>)
    for (std::size_t i = 0; i < owned_.size(); ++i)
      parameters_->initial_values(exec, seed, owned_[i],
                                  Tensor<State<T>, 1>(master_weights_.data() + moment_starts_[i], owned_[i].size()));
}

template <class T>
void AdamW<T>::step(const ExecSpace& exec, double learning_rate, Tensor<double, 0> clip, Index step) const {
  adamw_update<T>(exec, parameters_->flat_weights(), master_weights_, exp_avg_, exp_avg_sq_,
                  parameters_->flat_gradients(), parts_, config_, learning_rate, clip, step);
}

#define ESPALIER_INSTANTIATE(T)                                                                                 \
  template class AdamW<T>;                                                                                      \
  template void adamw_update<T>(const ExecSpace&, Tensor<T, 1>, Tensor<State<T>, 1>, Tensor<State<T>, 1>,       \
                                Tensor<State<T>, 1>, Tensor<State<T>, 1>, Tensor<Index, 1>, const AdamWConfig&, \
                                double, Tensor<double, 0>, Index);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
