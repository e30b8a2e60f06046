// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Single instructions, as a kernel computes them, beside what the PTX manual says of them in plain C++. Where they
// differ it is told, and the program ends with 1.
#include <cuda_runtime_api.h>

#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

using Word = std::uint32_t;
constexpr int num_results = 36, lanes = 32;

// Two numbers that differ from lane to lane, and one of the awkward ones.
__host__ __device__ Word first(int lane) { return 0xdeadbeefU * static_cast<Word>(lane + 1); }
__host__ __device__ Word second(int lane) { return 0x9e3779b9U + 0x01000193U * static_cast<Word>(lane); }
__host__ __device__ float number(int lane) {
  const float awkward[] = {2.5F, 3.5F, -2.5F, 1e20F, -1e20F, 65519.0F, 65520.0F, 6e-8F, 1.00048828125F, -0.0F};
  return lane < 10 ? awkward[lane] : lane == 10 ? NAN : static_cast<float>(lane) * 0.37F;
}

__device__ Word* next(Word*& out) { return out += lanes, out - lanes; }

__global__ void compute(Word* results /* (num_results, lanes) */) {
  __shared__ Word counters[lanes];
  const int lane = static_cast<int>(threadIdx.x);
  const Word a = first(lane), b = second(lane);
  const float x = number(lane), y = number(lane ^ 1);
  Word* out = results + lane;
  Word r, low;
  counters[lane] = a;
  asm volatile("atom.shared.add.u32 %0, [%1], %2;"
               : "=r"(r)
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&counters[lane]))), "r"(b)
               : "memory");
  *next(out) = r;
  *next(out) = counters[lane];
  asm volatile("{ .reg .pred p; mov.pred p, -1; selp.u32 %0, 7, 9, p; }" : "=r"(r));
  *next(out) = r;
  asm("bfe.u32 %0, %1, 4, 12;" : "=r"(r) : "r"(a));
  *next(out) = r;
  asm("bfe.s32 %0, %1, 8, 8;" : "=r"(r) : "r"(a));
  *next(out) = r;
  asm("bfi.b32 %0, %1, %2, 5, 9;" : "=r"(r) : "r"(a), "r"(b));
  *next(out) = r;
  asm("prmt.b32 %0, %1, %2, 0x40f8;" : "=r"(r) : "r"(a), "r"(b));
  *next(out) = r;
  asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(lane));
  *next(out) = r;
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(lane));
  *next(out) = r;
  asm("lop3.b32 %0, %1, %2, %3, 0xe8;" : "=r"(r) : "r"(a), "r"(b), "r"(0x0f0f0f0fU));
  *next(out) = r;
  asm("{ add.cc.u32 %0, %2, %3; addc.u32 %1, %2, 0; }" : "=&r"(low), "=r"(r) : "r"(a), "r"(b));
  *next(out) = r;
  asm("{ sub.cc.u32 %0, %2, %3; subc.u32 %1, %2, 0; }" : "=&r"(low), "=r"(r) : "r"(a), "r"(b));
  *next(out) = r;
  asm("{ mad.lo.cc.u32 %0, %2, %3, %2; madc.hi.u32 %1, %2, %3, %3; }" : "=&r"(low), "=r"(r) : "r"(a), "r"(b));
  *next(out) = r;
  asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(r) : "f"(x));
  *next(out) = r;
  asm("cvt.rni.s32.f32 %0, %1;" : "=r"(r) : "f"(x));
  *next(out) = r;
  asm("{ .reg .b64 w; cvt.rzi.s64.f32 w, %1; mov.b64 {_, %0}, w; }" : "=r"(r) : "f"(x));
  *next(out) = r;
  asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.u32.u16 %0, h; }" : "=r"(r) : "f"(x));
  *next(out) = x == x ? r : 0;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x), "f"(y));
  *next(out) = x == x && y == y ? r : 0;
  asm("{ .reg .b16 h; cvt.rn.bf16.f32 h, %1; cvt.u32.u16 %0, h; }" : "=r"(r) : "f"(x));
  *next(out) = x == x ? r : 0;
  asm("{ .reg .f32 s; cvt.sat.f32.f32 s, %1; mov.b32 %0, s; }" : "=r"(r) : "f"(x));
  *next(out) = r;
  asm("{ .reg .f32 s; fma.rm.f32 s, %1, %2, %1; mov.b32 %0, s; }" : "=r"(r) : "f"(x), "f"(y));
  *next(out) = x == x && y == y ? r : 0;
  *next(out) = __shfl_up_sync(0xffffffffU, a, 3, 8);
  *next(out) = __shfl_down_sync(0xffffffffU, a, 3, 8);
  *next(out) = __shfl_sync(0xffffffffU, a, 5, 16);
  *next(out) = __shfl_xor_sync(0xffffffffU, a, 9);
  const Word half = lane < 16 ? 0x0000ffffU : 0xffff0000U;
  *next(out) = __ballot_sync(half, a % 3 == 0);
  *next(out) = static_cast<Word>(__all_sync(half, lane < 16)) * 2 + static_cast<Word>(__any_sync(half, lane == 20));
  asm("mul.hi.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  *next(out) = r;
  asm("shr.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(2 * lane));
  *next(out) = r;
  asm("shl.b32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(2 * lane));
  *next(out) = r;
  asm("{ .reg .pred p, q, s, t; setp.ltu.f32 p, %1, %2; setp.lt.f32 q, %1, %2; setp.ne.f32 s, %1, %2; setp.neu.f32 t, "
      "%1, %2;"
      " .reg .b32 w; selp.u32 %0, 1, 0, p; selp.u32 w, 2, 0, q; add.u32 %0, %0, w; selp.u32 w, 4, 0, s; add.u32 %0, "
      "%0, w;"
      " selp.u32 w, 8, 0, t; add.u32 %0, %0, w; }"
      : "=&r"(r)
      : "f"(x), "f"(y));
  *next(out) = r;
  *next(out) = static_cast<Word>(__clz(static_cast<int>(a >> lane)) * 100 + __popc(a));
  asm("{ .reg .f32 m; min.f32 m, %1, %2; mov.b32 %0, m; }" : "=r"(r) : "f"(x), "f"(y));
  *next(out) = r;
  asm("rem.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(-7));
  *next(out) = r;
  asm("div.s32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(-7));
  *next(out) = r;
  asm("{ .reg .b64 w; mul.wide.s32 w, %1, %2; mov.b64 {_, %0}, w; }" : "=r"(r) : "r"(a), "r"(b));
  *next(out) = r;
}

Word saturated(double x) {
  return std::isnan(x)
             ? 0
             : static_cast<Word>(static_cast<std::int32_t>(std::fmax(-2147483648.0, std::fmin(2147483647.0, x))));
}
Word high_of_64(float x) {
  if (std::isnan(x))
    return 0x80000000U;
  if (std::fabs(x) >= 9.2e18F)
    return x > 0 ? 0x7fffffffU : 0x80000000U;
  return static_cast<Word>(static_cast<std::uint64_t>(static_cast<std::int64_t>(x)) >> 32);
}
Word bf16(float x) {
  const auto bits = std::bit_cast<Word>(x);
  return (bits + 0x7fffU + (bits >> 16 & 1)) >> 16;
}
// The nearest number of fp16, the even one of two, by search.
Word fp16(float x) {
  const auto value = [](Word h) {
    const Word e = h >> 10, f = h & 1023;
    return e == 31 ? 65536.0 : e == 0 ? std::ldexp(f, -24) : std::ldexp(1024.0 + f, static_cast<int>(e) - 25);
  };
  Word best = 0;
  for (Word h = 1; h <= 0x7c00; ++h) {
    const double was = std::fabs(value(best) - std::fabs(x)), is = std::fabs(value(h) - std::fabs(x));
    if (is < was || (is == was && h % 2 == 0))
      best = h;
  }
  return std::signbit(x) ? best | 0x8000U : best;
}

float fma_downwards(float a, float b, float c) {
  std::fesetround(FE_DOWNWARD);
  volatile float factor = a;  // not to be computed before the mode is set
  const volatile float sum = std::fma(factor, b, c);
  std::fesetround(FE_TONEAREST);
  return sum;
}

std::vector<Word> expected(int lane) {
  const Word a = first(lane), b = second(lane), ones = 0xffffffffU;
  const float x = number(lane), y = number(lane ^ 1);
  const auto sa = static_cast<std::int32_t>(a), sb = static_cast<std::int32_t>(b);
  const std::uint64_t both = static_cast<std::uint64_t>(b) << 32 | a, product = std::uint64_t{a} * b;
  const auto sign = [](Word byte) { return (byte & 0x80) != 0 ? Word{0xff} : Word{0}; };
  Word votes = 0;
  for (int l = lane / 16 * 16; l < lane / 16 * 16 + 16; ++l)
    votes |= static_cast<Word>(first(l) % 3 == 0) << l;
  const bool ordered = !std::isnan(x) && !std::isnan(y);
  return {
      a,
      a + b,
      7,
      a >> 4 & 0xfff,
      static_cast<Word>(static_cast<std::int32_t>(static_cast<std::int8_t>(a >> 8))),
      (b & ~(0x1ffU << 5)) | (a & 0x1ff) << 5,
      // digits 8, f, 0, 4 from the lowest: signs of the first and the last byte, the first of a, the first of b
      sign(a & 0xff) | sign(b >> 24) << 8 | (a & 0xff) << 16 | (b & 0xff) << 24,
      static_cast<Word>(both << lane >> 32),
      static_cast<Word>(both >> lane),
      (a & b) | (a & 0x0f0f0f0fU) | (b & 0x0f0f0f0fU),
      a + static_cast<Word>((std::uint64_t{a} + b) >> 32),
      a - static_cast<Word>(a < b),
      static_cast<Word>((product + a + (std::uint64_t{b} << 32)) >> 32),
      saturated(std::trunc(x)),
      saturated(std::nearbyint(x)),
      high_of_64(x),
      std::isnan(x) ? 0 : fp16(x),
      ordered ? bf16(x) << 16 | bf16(y) : 0,
      std::isnan(x) ? 0 : bf16(x),
      std::bit_cast<Word>(x > 0 ? std::fmin(x, 1.0F) : 0.0F),
      ordered ? std::bit_cast<Word>(fma_downwards(x, y, x)) : 0,
      first(lane % 8 < 3 ? lane : lane - 3),
      first(lane % 8 > 4 ? lane : lane + 3),
      first(lane / 16 * 16 + 5),
      first(lane ^ 9),
      votes,
      lane < 16 ? 2U : 1U,
      static_cast<Word>(static_cast<std::uint64_t>(std::int64_t{sa} * sb) >> 32),
      static_cast<Word>(2 * lane > 31 ? (sa < 0 ? -1 : 0) : sa >> (2 * lane)),
      2 * lane > 31 ? 0 : a << (2 * lane),
      static_cast<Word>(!(x >= y)) + 2 * static_cast<Word>(x < y) + 4 * static_cast<Word>(ordered && x != y) +
          8 * static_cast<Word>(!(x == y)),
      static_cast<Word>(std::countl_zero(a >> lane) * 100 + std::popcount(a)),
      std::bit_cast<Word>(std::fmin(x, y)),
      static_cast<Word>(sa % -7),
      static_cast<Word>(sa / -7),
      static_cast<Word>(static_cast<std::uint64_t>(std::int64_t{sa} * sb) >> 32) & ones,
  };
}

}  // namespace

int main() {
  Word* device = nullptr;
  std::vector<Word> results(num_results * lanes);
  cudaMalloc(&device, results.size() * sizeof(Word));
  compute<<<1, lanes>>>(device);
  cudaMemcpy(results.data(), device, results.size() * sizeof(Word), cudaMemcpyDeviceToHost);
  cudaFree(device);
  int wrong = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    const std::vector<Word> wanted = expected(lane);
    for (int i = 0; i < num_results; ++i)
      if (results[static_cast<std::size_t>(i * lanes + lane)] != wanted.at(static_cast<std::size_t>(i)) &&
          ++wrong <= 40)
        std::printf("result %d of lane %d: got %08x, wanted %08x\n", i, lane,
                    results[static_cast<std::size_t>(i * lanes + lane)], wanted[static_cast<std::size_t>(i)]);
  }
  return wrong == 0 ? 0 : 1;
}
