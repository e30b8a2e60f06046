// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "io/nearest_word.hpp"
#include "io/strings.hpp"
#include "planning/accelerator.hpp"

// Peaks, memory and bandwidths are the vendors'. The shares are fitted (docs/planner.md says on what). Where nothing
// was fitted to runs on a device they are those of its nearest relative, or 0.8 of its best measured matmul: runs on
// other devices reach 0.72 (H100) to 0.83 (A100) of theirs. like(), by_matmul() and guessed() say so. Best matmuls in
// bf16, TFLOP/s: A100 271, H100 794, GH200 829, B200 1745, B300 1769, GB200 1822, MI300X 668, MI325X 785, MI355X 1565,
// Gaudi 2 419, Gaudi 3 1243 [stas00/ml-engineering, compute/accelerator/README.md].

namespace espalier {
namespace {

constexpr double tera = 1e12;

struct Curve {
  double matmul_efficiency;
  double half_depth;
  double fill_waves;
  double attention_efficiency = 0;  // none in fp8, which leaves attention to bf16
  double tuned_attention_efficiency = 0;
};

// matmul_efficiency, half_depth, fill_waves, attention_efficiency, tuned_attention_efficiency
constexpr Curve volta{0.83, 60, 0.12, 0.33};
constexpr Curve ampere{0.72, 60, 0.12, 0.34};
constexpr Curve hopper{0.575, 80, 0.20, 0.20, 0.35};
constexpr Curve hopper_fp8{0.56, 100, 0.30};
constexpr Curve hopper_500w{0.48, 80, 0.20, 0.21, 0.27};  // the board with HBM2e, held to 500 W
constexpr Curve hopper_500w_fp8{0.54, 100, 0.30};
constexpr Curve hopper_grace{0.60, 80, 0.20, 0.20, 0.35};  // its best matmul is 4 % above that of an H100
constexpr Curve blackwell{0.56, 100, 0.20, 0.15, 0.43};
constexpr Curve blackwell_fp8{0.48, 150, 0.30};
constexpr Curve blackwell_ultra{0.64, 100, 0.20, 0.17, 0.52};
constexpr Curve blackwell_ultra_fp8{0.58, 150, 0.30};
constexpr Curve cdna2{0.48, 100, 0.20, 0.22};
constexpr Curve cdna3{0.42, 100, 0.20, 0.24};
constexpr Curve cdna3_fp8{0.36, 150, 0.30};
constexpr Curve cdna3_mi325{0.49, 100, 0.20, 0.24};  // its best product comes nearer to the same peak
constexpr Curve cdna3_mi325_fp8{0.42, 150, 0.30};
constexpr Curve cdna4{0.51, 100, 0.20, 0.24};
constexpr Curve cdna4_fp8{0.44, 150, 0.30};
constexpr Curve ponte_vecchio{0.42, 100, 0.20, 0.20};
constexpr Curve gaudi2{0.72, 100, 0.20, 0.32};
constexpr Curve gaudi3{0.56, 100, 0.20, 0.27};
constexpr Curve ada{0.60, 80, 0.20, 0.32};
constexpr Curve vector_units{0.80, 64, 0.10, 0.44};

constexpr double attention_half_length =
    1000;  // keys: a fused kernel fills and drains its pipeline for each query block

MatrixRate rate(double teraflops, const Curve& curve) {
  return {.peak_flops = teraflops * tera,
          .matmul_efficiency = curve.matmul_efficiency,
          .half_depth = curve.half_depth,
          .fill_waves = curve.fill_waves,
          .attention_efficiency = curve.attention_efficiency,
          .tuned_attention_efficiency = curve.tuned_attention_efficiency,
          .attention_half_length = curve.attention_efficiency > 0 ? attention_half_length : 0};
}

struct Rates {
  double fp32, tf32, half, bf16, fp8;  // TFLOP/s, dense; 0: has it not
  Curve curve;
  Curve curve_fp8 = hopper_fp8;
};

Accelerator device(std::string name, Index memory_gib, double bandwidth_tb, int processors, const Rates& rates) {
  Accelerator made{.name = std::move(name),
                   .memory_bytes = memory_gib * gib,
                   .memory_bandwidth = bandwidth_tb * tera,
                   .memory_efficiency = 0.88,
                   .processors = processors,
                   .kernel_seconds = 8e-6,
                   .step_seconds = 25e-3,
                   .unfitted = {},
                   .rates = {}};
  made.rate(Precision::fp32) = rate(rates.fp32, vector_units);
  made.rate(Precision::tf32) = rate(rates.tf32, rates.curve);
  made.rate(Precision::fp16) = rate(rates.half, rates.curve);
  made.rate(Precision::bf16) = rate(rates.bf16, rates.curve);
  made.rate(Precision::fp8) = rate(rates.fp8, rates.curve_fp8);
  return made;
}

Accelerator like(const char* relative, Accelerator made) {
  made.unfitted = std::string("that of ") + relative;
  return made;
}

Accelerator by_matmul(Accelerator made) {
  made.unfitted = "0.8 of its best matmul";
  return made;
}

Accelerator guessed(Accelerator made) {
  made.unfitted = "a guess from its peak";
  return made;
}

Accelerator without_build(Accelerator made) {
  made.has_build = false;
  return made;
}

Accelerator on_cores(Accelerator made) {
  made.moves_messages = true;
  return made;
}

const std::vector<Accelerator>& accelerators() {
  static const std::vector<Accelerator> table = {
      // V100 and A100 [NVIDIA data sheets]
      like("v100", device("v100-16", 16, 0.9, 80, {15.7, 0, 125, 0, 0, volta})),
      device("v100", 32, 0.9, 80, {15.7, 0, 125, 0, 0, volta}),
      device("a100-40", 40, 1.555, 108, {19.5, 156, 312, 312, 0, ampere}),
      // The custom part of Leonardo: 124 processors at 1.395 GHz, 2048 FLOPs a cycle each [Turisini et al. 2023]
      like("a100-80", device("a100-64", 64, 1.638, 124, {22.1, 177, 354, 354, 0, ampere})),
      device("a100-80", 80, 2.039, 108, {19.5, 156, 312, 312, 0, ampere}),
      like("a100-80", device("a800", 80, 2.039, 108, {19.5, 156, 312, 312, 0, ampere})),  // NVLink of 400 GB/s
      // H100 and its kin [NVIDIA data sheets]
      device("h100", 80, 3.35, 132, {67, 495, 989, 989, 1979, hopper}),
      device("h100-hbm2e", 96, 2.4, 132, {67, 495, 989, 989, 1979, hopper_500w, hopper_500w_fp8}),
      device("h800", 80, 3.35, 132, {67, 495, 989, 989, 1979, hopper}),  // NVLink of 400 GB/s
      device("h200", 141, 4.8, 132, {67, 495, 989, 989, 1979, hopper}),
      like("h100", device("gh200", 96, 4.0, 132, {67, 495, 989, 989, 1979, hopper_grace})),
      // Blackwell [NVIDIA data sheets]
      device("b200", 180, 8.0, 148, {80, 1125, 2250, 2250, 4500, blackwell, blackwell_fp8}),
      device("gb200", 186, 8.0, 148, {80, 1250, 2500, 2500, 5000, blackwell, blackwell_fp8}),
      like("gb300", device("b300", 268, 8.0, 148, {80, 1125, 2250, 2250, 4500, blackwell_ultra, blackwell_ultra_fp8})),
      device("gb300", 277, 8.0, 148, {80, 1250, 2500, 2500, 5000, blackwell_ultra, blackwell_ultra_fp8}),
      like("a100-40", device("a100-40-pcie", 40, 1.555, 108, {19.5, 156, 312, 312, 0, ampere})),
      like("a100-80", device("a100-pcie", 80, 1.94, 108, {19.5, 156, 312, 312, 0, ampere})),
      like("h100", device("h100-pcie", 80, 2.0, 114, {51, 378, 756, 756, 1513, hopper, hopper_fp8})),
      guessed(device("l40s", 45, 0.864, 142, {91.6, 183, 362, 362, 733, ada})),
      // MI250X [AMD data sheet]; one of its two dies, which is what a rank gets, and both dies as one device
      without_build(guessed(device("mi250x", 64, 1.638, 110, {47.9, 0, 191.5, 191.5, 0, cdna2}))),
      without_build(guessed(device("mi250x-module", 128, 3.276, 220, {95.7, 0, 383, 383, 0, cdna2}))),
      // MI300A: 228 compute units at 2.1 GHz, MI350X: 256 at 2.2 GHz [AMD data sheets, as the others]
      without_build(
          like("mi300x", device("mi300a", 128, 5.3, 228, {122.6, 490.3, 980.6, 980.6, 1961, cdna3, cdna3_fp8}))),
      without_build(by_matmul(device("mi300x", 192, 5.3, 304, {163.4, 653.7, 1307, 1307, 2614, cdna3, cdna3_fp8}))),
      without_build(
          by_matmul(device("mi325x", 256, 6.0, 304, {163.4, 653.7, 1307, 1307, 2614, cdna3_mi325, cdna3_mi325_fp8}))),
      without_build(like("mi355x", device("mi350x", 288, 8.0, 256, {144, 0, 2300, 2300, 4600, cdna4, cdna4_fp8}))),
      without_build(by_matmul(device("mi355x", 288, 8.0, 256, {157, 0, 2500, 2500, 5000, cdna4, cdna4_fp8}))),
      // Ponte Vecchio (Data Center GPU Max 1550): 64 cores a tile, 4096 FLOPs a cycle each at 1.6 GHz [Intel data
      // sheet].
      // With all tiles of a node at work a bf16 matmul reaches 220 TFLOP/s a tile, alone 273 [micro-benchmarks of
      // Argonne's Aurora].
      without_build(by_matmul(device("pvc-tile", 64, 1.638, 64, {26, 210, 419, 419, 0, ponte_vecchio}))),
      without_build(by_matmul(device("pvc", 128, 3.276, 128, {52, 419, 839, 839, 0, ponte_vecchio}))),
      // Gaudi [Intel data sheets]
      without_build(device("gaudi2", 96, 2.46, 24, {0, 0, 432, 432, 865, gaudi2})),
      without_build(by_matmul(device("gaudi3", 128, 3.7, 64, {0, 0, 1677, 1677, 1677, gaudi3}))),
      // A64FX: 48 cores at 2.0 GHz, 64 FLOPs a cycle in fp32 [Fujitsu data sheet]. Like the next it widens bf16.
      guessed(on_cores(device("a64fx", 32, 1.024, 48, {6.14, 0, 0, 6.14, 0, vector_units}))),
      // A node of two EPYC 7543 (2 x 32 cores at 2.8 GHz, 32 FLOPs a cycle by AVX2, 8 channels of DDR4-3200 each). They
      // have no units for bf16: `train` widens it, and multiplies in fp32. `bench machine` measures what a CPU has.
      guessed(on_cores(device("cpu", 256, 0.41, 64, {5.7, 0, 0, 5.7, 0, vector_units}))),
  };
  return table;
}

}  // namespace

std::vector<std::string> accelerator_preset_names() {
  std::vector<std::string> names;
  for (const Accelerator& each : accelerators())
    names.push_back(each.name);
  return names;
}

Accelerator accelerator_preset(const std::string& name) {
  for (const Accelerator& each : accelerators())
    if (each.name == name)
      return each;
  throw Error(ExitCode::usage, {.what = "unknown accelerator",
                                .got = name,
                                .wanted = fmt::format("one of {}", fmt::join(accelerator_preset_names(), ", ")),
                                .todo = did_you_mean(name, accelerator_preset_names())});
}

std::optional<std::string> accelerator_named(std::string_view published) {
  std::string text = lower_case(std::string(published));
  std::erase_if(text, [](unsigned char c) { return std::isalnum(c) == 0; });
  const auto has = [&](std::string_view part) { return contains(text, part); };
  // Names that begin like another's: memory and links of the NVL boards are not those of the SXM boards, and an RTX
  // A1000 is no A100.
  if (has("rtx") || ((has("h100") || has("h200")) && has("nvl") && !has("nvlink")))
    return std::nullopt;
  // The longer name first where one holds another.
  static const std::vector<std::pair<std::string_view, const char*>> words{
      {"gb200", "gb200"},   {"gb300", "gb300"},  {"b200", "b200"},    {"b300", "b300"},    {"gh200", "gh200"},
      {"h200", "h200"},     {"h800", "h800"},    {"a800", "a800"},    {"mi250", "mi250x"}, {"mi300a", "mi300a"},
      {"mi300", "mi300x"},  {"mi325", "mi325x"}, {"mi350", "mi350x"}, {"mi355", "mi355x"}, {"gaudi2", "gaudi2"},
      {"gaudi3", "gaudi3"}, {"l40s", "l40s"},    {"max1550", "pvc"},  {"a64fx", "a64fx"},
  };
  if (has("h100"))
    return has("hbm2e") ? "h100-hbm2e" : has("pcie") ? "h100-pcie" : "h100";
  if (has("a100"))
    return has("64g")    ? "a100-64"
           : has("40g")  ? (has("pcie") ? "a100-40-pcie" : "a100-40")
           : has("pcie") ? "a100-pcie"
                         : "a100-80";
  if (has("v100"))
    return has("16g") ? "v100-16" : "v100";
  for (const auto& [word, name] : words)
    if (has(word))
      return name;
  return std::nullopt;
}

}  // namespace espalier
