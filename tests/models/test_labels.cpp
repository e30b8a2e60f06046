// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "core/ops/gradient_norm.hpp"
#include "core/optim/adamw.hpp"
#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

// Profilers and the memory ledger read labels: each launch, region and allocation of ours bears one of ours.
namespace {

struct Seen {
  std::vector<std::string> kernels, regions, allocations;
};
Seen* seen = nullptr;  // the callbacks are plain functions

void note_kernel(const char* label, std::uint32_t, std::uint64_t*) { seen->kernels.emplace_back(label); }
void note_region(const char* label) { seen->regions.emplace_back(label); }
// On GPUs Kokkos asks for scratch memory before each kernel of teams, for none where there is enough of it.
void note_allocation(Kokkos_Profiling_SpaceHandle, const char* label, const void*, std::uint64_t bytes) {
  if (bytes == 0)
    return;
  static std::mutex mutex;  // threads of Kokkos allocate what is theirs
  const std::lock_guard lock(mutex);
  seen->allocations.emplace_back(label);
}

template <class F>
Seen labels_of(const F& work) {
  namespace tools = Kokkos::Tools::Experimental;
  Seen result;
  seen = &result;
  const tools::EventSet before = tools::get_callbacks();
  tools::set_begin_parallel_for_callback(note_kernel);
  tools::set_begin_parallel_reduce_callback(note_kernel);
  tools::set_begin_parallel_scan_callback(note_kernel);
  tools::set_push_region_callback(note_region);
  tools::set_allocate_data_callback(note_allocation);
  work();
  Kokkos::fence();
  tools::set_callbacks(before);
  return result;
}

// Fills and copies that Kokkos launches for us carry Kokkos' own label.
bool is_ours(const std::string& label) { return label.starts_with("espalier::"); }
bool is_copy_of_kokkos(const std::string& label) {
  return label.starts_with("Kokkos::View::initialization [espalier::") || label.starts_with("Kokkos::ViewFill") ||
         label.starts_with("Kokkos::ViewCopy") || label.starts_with("Kokkos::deep_copy");
}

// The team scratch that the first large kernel makes; a View of ours without a label has the empty one.
bool is_scratch_of_kokkos(const std::string& label) { return label == "[unlabeled]" || label.starts_with("Kokkos::"); }

TEST(Labels, everything_of_a_training_step_has_our_name) {
  const Tokens tokens = tiny_tokens(10);
  const Seen labels = labels_of([&] {
    ParameterStore<float> parameters;
    Decoder<Fp32> model(parameters, tiny_config());
    parameters.allocate();
    parameters.initialize(ExecSpace(), 1);
    model.plan_activations(2, 5, 1);
    const AdamW<float> optimizer(parameters, {});
    const SquaredNorm norm(ExecSpace(), {{0, parameters.flat_size()}});
    const Tensor<double, 0> value("espalier::workspace::norm"), clip("espalier::workspace::clip");
    model.forward(ExecSpace(), 0, tokens.batch(), 0.1);
    model.backward(ExecSpace(), 0);
    norm.compute<float>(ExecSpace(), parameters.flat_gradients());
    clip_factor(ExecSpace(), value, clip, norm.sums(), 1.0);
    optimizer.step(ExecSpace(), 1e-3, clip, 1);
    model.evaluate(ExecSpace(), 0, tokens.batch(), 0.1);
  });
  EXPECT_GT(labels.kernels.size(), 50u);
  EXPECT_GT(labels.regions.size(), 2u);
  EXPECT_GT(labels.allocations.size(), 6u);
  for (const std::string& label : labels.kernels)
    EXPECT_TRUE(is_ours(label) || is_copy_of_kokkos(label)) << "kernel '" << label << "'";
  for (const std::string& label : labels.regions)
    EXPECT_TRUE(is_ours(label)) << "region '" << label << "'";
  for (const std::string& label : labels.allocations) {
    if (is_scratch_of_kokkos(label))
      continue;
    EXPECT_TRUE(is_ours(label)) << "allocation '" << label << "'";
    const auto category = std::string_view(label).substr(std::min<std::size_t>(label.size(), 10));
    bool known = false;
    for (std::size_t i = 0; i < num_categories; ++i)
      known = known || category.starts_with(std::string(to_string(static_cast<Category>(i))) + "::");
    EXPECT_TRUE(known) << "allocation '" << label << "' names no category";
  }
}

// A step allocates nothing: addresses stay, and the planned memory is all there is.
TEST(Labels, a_training_step_allocates_nothing) {
  const Tokens tokens = tiny_tokens(10);
  TinyDecoder<Fp32> tiny(2, 5, 1);
  tiny.model->forward(tiny.exec, 0, tokens.batch(), 0.1);  // scratch of Kokkos grows once
  tiny.model->backward(tiny.exec, 0);
  const Seen labels = labels_of([&] {
    tiny.model->forward(tiny.exec, 0, tokens.batch(), 0.1);
    tiny.model->backward(tiny.exec, 0);
  });
  EXPECT_TRUE(labels.allocations.empty()) << labels.allocations.size() << ", the first: " << labels.allocations.front();
}

}  // namespace
