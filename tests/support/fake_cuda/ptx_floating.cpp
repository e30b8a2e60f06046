// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Arithmetic of fp32 and fp64. Compiled without contraction to fma.
#include <cmath>
#include <limits>

#include "tests/support/fake_cuda/ptx_map.hpp"

namespace fake_cuda::ptx {
namespace {

template <class T>
Execute floating(std::string_view name) {
  if (name == "add" || name == "add.rn")
    return map2<T>([](T a, T b) { return a + b; });
  if (name == "sub" || name == "sub.rn")
    return map2<T>([](T a, T b) { return a - b; });
  if (name == "mul" || name == "mul.rn")
    return map2<T>([](T a, T b) { return a * b; });
  if (name == "div.rn")
    return map2<T>([](T a, T b) { return a / b; });
  if (name == "fma.rn")
    return map3<T>([](T a, T b, T c) { return std::fma(a, b, c); });
  if (name == "min")  // of a NaN and a number, the number
    return map2<T>([](T a, T b) { return std::fmin(a, b); });
  if (name == "max")
    return map2<T>([](T a, T b) { return std::fmax(a, b); });
  if (name == "abs")
    return map1<T>([](T a) { return std::fabs(a); });
  if (name == "neg")
    return map1<T>([](T a) { return -a; });
  if (name == "copysign")  // of a, on b
    return map2<T>([](T a, T b) { return std::copysign(b, a); });
  if (name == "sqrt.rn")
    return map1<T>([](T a) { return std::sqrt(a); });
  if (name == "rcp.rn")
    return map1<T>([](T a) { return T(1) / a; });
  return nullptr;
}

template <class T>
T flushed(T a) {
  return std::fabs(a) < std::numeric_limits<T>::min() ? std::copysign(T(0), a) : a;
}

// a b + c towards minus infinity: its nearest double, what that lacks (Knuth's two-sum), and the float below both.
float fma_downwards(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b), addend = static_cast<double>(c);
  const double sum = product + addend, part = sum - product;
  const double lacking = (product - (sum - part)) + (addend - part);
  const float nearest = static_cast<float>(sum);
  const bool is_above = static_cast<double>(nearest) > sum || (static_cast<double>(nearest) == sum && lacking < 0);
  return is_above ? std::nextafter(nearest, -std::numeric_limits<float>::infinity()) : nearest;
}

// What is only roughly right on a GPU is here as good as the host makes it.
Execute of_one_type(std::string_view name, std::string_view type) {
  if (type == "f64")
    return name == "rcp.approx.ftz" ? map1<double>([](double a) { return flushed(1 / flushed(a)); })
           : name == "rsqrt.approx" ? map1<double>([](double a) { return 1 / std::sqrt(a); })
                                    : nullptr;
  if (type != "f32")
    return nullptr;
  if (name == "fma.rm")
    return map3<float>([](float a, float b, float c) { return fma_downwards(a, b, c); });
  if (name == "ex2.approx.ftz")
    return map1<float>([](float a) { return flushed(std::exp2(flushed(a))); });
  if (name == "ex2.approx")
    return map1<float>([](float a) { return std::exp2(a); });
  if (name == "lg2.approx")
    return map1<float>([](float a) { return std::log2(a); });
  if (name == "rcp.approx")
    return map1<float>([](float a) { return 1 / a; });
  if (name == "rcp.approx.ftz")
    return map1<float>([](float a) { return flushed(1 / flushed(a)); });
  if (name == "rsqrt.approx")
    return map1<float>([](float a) { return 1 / std::sqrt(a); });
  if (name == "sqrt.approx")
    return map1<float>([](float a) { return std::sqrt(a); });
  if (name == "div.approx" || name == "div.full")
    return map2<float>([](float a, float b) { return a / b; });
  if (name == "tanh.approx")
    return map1<float>([](float a) { return std::tanh(a); });
  return nullptr;
}

}  // namespace

Execute floating_arithmetic(std::string_view name, std::string_view type) {
  const Execute found = type == "f32" ? floating<float>(name) : type == "f64" ? floating<double>(name) : nullptr;
  return found != nullptr ? found : of_one_type(name, type);
}

}  // namespace fake_cuda::ptx
