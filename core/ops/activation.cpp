// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/activation.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/ops/activation_functions.hpp"
#include "core/ops/activation_names.hpp"
#include "core/ops/map_row_to_pair.hpp"

namespace espalier {
namespace {

// The table: a line for each name, with its function and whether a gate goes with it.
template <class Visit>
void for_each_activation(const Visit& visit) {
  visit.template operator()<Gelu>("gelu", false);
  visit.template operator()<GeluErf>("gelu_erf", false);
  visit.template operator()<Silu>("silu", false);
  visit.template operator()<Relu>("relu", false);
  visit.template operator()<ReluSquared>("relu_squared", false);
  visit.template operator()<Silu>("swiglu", true);
  visit.template operator()<Gelu>("geglu", true);
}

template <class F, class T>
void activation_values(const ExecSpace& exec, const Tensor<T, 2>& y, const Tensor<T, 2>& x) {
  const Index width = x.extent(1);
  for_rows(
      exec, "espalier::core::activation_forward", x.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const T* const in = &x(n, 0);
        T* const out = &y(n, 0);
        const auto value = [](const T number) { return static_cast<T>(F::value(static_cast<State<T>>(number))); };
        map_row(thread, width, out, value, in);
      });
}

template <class F, class T>
void activation_gradients(const ExecSpace& exec, const Tensor<T, 2>& dx, const Tensor<T, 2>& dy,
                          const Tensor<T, 2>& x) {
  const Index width = x.extent(1);
  for_rows(
      exec, "espalier::core::activation_backward", x.extent(0), KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const T* const in = &x(n, 0);
        const T* const g = &dy(n, 0);
        T* const out = &dx(n, 0);
        const auto gradient = [](const T number, const T d) {
          return static_cast<T>(static_cast<State<T>>(d) * F::derivative(static_cast<State<T>>(number)));
        };
        map_row(thread, width, out, gradient, in, g);
      });
}

template <class F, class T>
void gated_values(const ExecSpace& exec, const Tensor<T, 2>& y, const Tensor<T, 2>& x) {
  using S = State<T>;
  const Index width = y.extent(1);
  for_rows(
      exec, "espalier::core::gated_activation_forward", x.extent(0),
      KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const auto value = [](const T gate, const T up) {
          return static_cast<T>(F::value(static_cast<S>(gate)) * static_cast<S>(up));
        };
        const T* const in = &x(n, 0);
        map_row(thread, width, &y(n, 0), value, in, in + width);
      });
}

template <class F, class T>
void gated_gradients(const ExecSpace& exec, const Tensor<T, 2>& dx, const Tensor<T, 2>& dy, const Tensor<T, 2>& x) {
  using S = State<T>;
  const Index width = dy.extent(1);
  for_rows(
      exec, "espalier::core::gated_activation_backward", x.extent(0),
      KOKKOS_LAMBDA(const Index n, const TeamThread& thread) {
        const auto gradients = [](const T d, const T gate, const T up) {
          const S wide = static_cast<S>(d), at = static_cast<S>(gate);
          return RowPair<S>{wide * static_cast<S>(up) * F::derivative(at), wide * F::value(at)};
        };
        const T* const in = &x(n, 0);
        const T* const g = &dy(n, 0);
        T* const out = &dx(n, 0);
        map_row_to_pair(thread, width, out, out + width, gradients, g, in, in + width);
      });
}

// Calls visit<F>(gated) for the name's line.
template <class Visit>
void visit_activation(std::string_view activation, const Visit& visit) {
  bool is_known = false;
  for_each_activation([&]<class F>(std::string_view name, bool gated) {
    if (name != activation)
      return;
    is_known = true;
    visit.template operator()<F>(gated);
  });
  ESPALIER_ASSERT(is_known, "no activation function is called " + std::string(activation));
}

template <class T>
void require_widths(std::string_view activation, bool gated, const Tensor<T, 2>& y, const Tensor<T, 2>& x) {
  const std::size_t wanted = (gated ? 2 : 1) * y.extent(1);
  ESPALIER_ASSERT(x.extent(1) == wanted, std::string(activation) + " has an input of width " +
                                             std::to_string(x.extent(1)) + ", wanted " + std::to_string(wanted));
}

}  // namespace

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for_each_activation([&]<class F>(const char* name, bool) { names.emplace_back(name); });
  return names;
}

bool is_gated(std::string_view activation) {
  bool gated = false;
  visit_activation(activation, [&]<class F>(bool is) { gated = is; });
  return gated;
}

template <class T>
void activation_forward(const ExecSpace& exec, std::string_view activation, Tensor<T, 2> y, Tensor<T, 2> x) {
  visit_activation(activation, [&]<class F>(bool gated) {
    require_widths<T>(activation, gated, y, x);
    gated ? gated_values<F, T>(exec, y, x) : activation_values<F, T>(exec, y, x);
  });
}

template <class T>
void activation_backward(const ExecSpace& exec, std::string_view activation, Tensor<T, 2> dx, Tensor<T, 2> dy,
                         Tensor<T, 2> x) {
  visit_activation(activation, [&]<class F>(bool gated) {
    require_widths<T>(activation, gated, dy, x);
    gated ? gated_gradients<F, T>(exec, dx, dy, x) : activation_gradients<F, T>(exec, dx, dy, x);
  });
}

#define ESPALIER_INSTANTIATE(T)                                                                        \
  template void activation_forward<T>(const ExecSpace&, std::string_view, Tensor<T, 2>, Tensor<T, 2>); \
  template void activation_backward<T>(const ExecSpace&, std::string_view, Tensor<T, 2>, Tensor<T, 2>, Tensor<T, 2>);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
