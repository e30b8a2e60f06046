// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Whoever carries the messages, each layout trains the same bits: so what test_layouts.cpp shows of our messages holds
// for the collectives of the MPI library, and for tensors that go as they do between GPUs
// (tests/support/host_links.hpp).
#include <gtest/gtest.h>

#include "tests/support/host_links.hpp"
#include "tests/training/families.hpp"
#include "tests/training/layout_cases.hpp"

namespace espalier::test {
namespace {

constexpr int num_training_steps = 2;  // from the second on, steps have the same messages

struct Case {
  std::string what;
  RunConfig config;
  bool is_fp64 = false;
};

// All layouts and shapes of test_layouts.cpp.
std::vector<Case> all_cases(const SharedFolder& folder) {
  const RunConfig base = split_config(folder);
  std::vector<Case> cases;
  for (const RunConfig& config : configs_to_verify(base))
    cases.push_back({"a layout", config});
  for (const RunConfig& config : two_level_configs(base))
    cases.push_back({"two levels", config});
  for (const OddLayout& odd : odd_layouts(world().size()))
    cases.push_back({odd.what, laid_out(parse_run_config(to_toml(base), "model", odd.model, 1), odd.layout)});
  for (const auto& [family, keys] : families())
    for (const Overrides& overrides : some_layouts())
      cases.push_back({family, laid_out(split_config(folder, keys), overrides), true});
  return cases;
}

Curve train(const Case& run) {
  return run.is_fp64 ? train_curve<Fp64>(run.config, world(), num_training_steps)
                     : train_curve<Fp32>(run.config, world(), num_training_steps);
}

TEST(Carriers, EveryLayoutHasTheBitsOfOurMessages) {
  const SharedFolder folder("carriers");
  const std::vector<Case> cases = all_cases(folder);
  std::vector<Curve> wanted;
  for (const Case& run : cases)
    wanted.push_back(train(run));
  const auto expect_same_bits_by = [&](const std::string& carrier) {
    for (std::size_t i = 0; i < cases.size(); ++i)
      EXPECT_EQ(train(cases[i]), wanted[i])
          << carrier << ", " << cases[i].what << ": " << make_run_layout(cases[i].config, world().size()).short_text();
  };
  const int usual = world().context().max_direct_ranks;
  world().set_max_direct_ranks(1);
  expect_same_bits_by("the collectives of the MPI library");
  world().set_max_direct_ranks(usual);
  use_host_links(world());  // to the end of the process
  expect_same_bits_by("links");
}

}  // namespace
}  // namespace espalier::test
