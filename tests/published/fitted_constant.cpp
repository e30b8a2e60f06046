// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/fitted_constant.hpp"

#include <set>

namespace espalier {
namespace {

bool is_fp8(const PublishedCase& row) { return row.space.precisions.front() == Precision::fp8; }

// Devices of one curve.
std::string curve_of(const PublishedCase& row) {
  const std::string& device = row.problem.cluster.device.name;
  if (device == "h100-hbm2e")
    return device;
  if (device.starts_with("a800"))
    return "a100";
  if (device.starts_with("h800") || device.starts_with("h200"))
    return "h100";
  return device.substr(0, device.find('-'));
}

MatrixRate& rate_of(PublishedCase& row) { return row.problem.cluster.device.rate(row.space.precisions.front()); }

MatrixRate& attention_rate_of(PublishedCase& row) {
  return row.problem.cluster.device.rate(attention_precision(row.space.precisions.front()));
}

FittedConstant of_device(std::string name, double spread, double Accelerator::*member) {
  return {std::move(name), spread, [=](PublishedCase& row) { return &(row.problem.cluster.device.*member); }};
}

FittedConstant of_attention(std::string name, double spread, double MatrixRate::*member) {
  return {std::move(name), spread, [=](PublishedCase& row) {
            return row.problem.implementation.fused_attention ? &(attention_rate_of(row).*member) : nullptr;
          }};
}

FittedConstant of_link(std::string name, double spread, LinkTier Cluster::*link, double LinkTier::*member) {
  return {std::move(name), spread, [=](PublishedCase& row) {
            return row.space.num_devices > 1 ? &(row.problem.cluster.*link.*member) : nullptr;
          }};
}

}  // namespace

std::vector<FittedConstant> constants_of_time(const std::vector<PublishedCase>& cases) {
  std::vector<FittedConstant> all{
      of_attention("attention share", 0.3, &MatrixRate::attention_efficiency),
      of_attention("tuned attention share", 0.3, &MatrixRate::tuned_attention_efficiency),
      of_attention("attention half length", 0.5, &MatrixRate::attention_half_length),
      of_device("memory share", 0.1, &Accelerator::memory_efficiency),
      of_link("node bandwidth", 0.15, &Cluster::node, &LinkTier::bandwidth),
  };
  std::set<std::pair<std::string, bool>> curves;
  for (const PublishedCase& row : cases)
    curves.emplace(curve_of(row), is_fp8(row));
  for (const auto& each : curves) {
    const std::string curve = each.first;
    const bool fp8 = each.second;
    constexpr double spread = 0.1;  // of the logarithm: devices of one table differ by so much
    all.push_back({curve + (fp8 ? " fp8 products" : " products"), spread, [=](PublishedCase& row) {
                     return curve_of(row) == curve && is_fp8(row) == fp8 ? &rate_of(row).matmul_efficiency : nullptr;
                   }});
  }
  return all;
}

std::vector<FittedConstant> constants_of_memory() {
  return {{"bytes of a logit", 0.3,
           [](PublishedCase& row) {
             PublishedMemory& program = row.memory;
             return program.copies_logits ? &program.logit_bytes : nullptr;
           }},
          {"what allocators hold", 0.1,
           [](PublishedCase& row) {
             PublishedMemory& program = row.memory;
             return program.reserved_times > 1 ? &program.reserved_times : nullptr;
           }},
          {"libraries", 0.7, [](PublishedCase& row) { return &row.memory.library_bytes; }}};
}

}  // namespace espalier
