// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "core/error.hpp"
#include "core/memory_ledger.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/tensor.hpp"

using namespace espalier;

namespace {

constexpr bool device_is_host = std::is_same_v<MemSpace, Kokkos::HostSpace>;
constexpr std::size_t header_bytes = 512;  // at most what Kokkos puts in front of an allocation

std::size_t bytes_of(Category category) { return MemoryLedger::instance().current()[category]; }

TEST(MemoryLedger, counts_by_category_and_forgets_what_is_freed) {
  const MemoryByCategory before = MemoryLedger::instance().current();
  for (std::size_t i = 0; i < num_categories; ++i) {
    const auto category = static_cast<Category>(i);
    SCOPED_TRACE(to_string(category));
    {
      const auto data = allocate<double>(category, "test", 1000);
      EXPECT_GE(bytes_of(category), before[category] + 8000);
      EXPECT_LE(bytes_of(category), before[category] + 8000 + header_bytes);
      const auto copy = data;  // counted once
      EXPECT_LE(bytes_of(category), before[category] + 8000 + header_bytes);
      EXPECT_EQ(MemoryLedger::instance().current().total() - before.total(), bytes_of(category) - before[category]);
    }
    EXPECT_EQ(bytes_of(category), before[category]);
  }
}

TEST(MemoryLedger, counts_a_library_s_memory_as_workspace_and_ours_without_category_as_other) {
  const std::size_t workspace = bytes_of(Category::workspace);
  const std::size_t other = bytes_of(Category::other);
  const Tensor<char, 1> of_library("KokkosBlas::buffer", 5000);
  EXPECT_GE(bytes_of(Category::workspace), workspace + 5000);
  const Tensor<char, 1> of_ours("espalier::scratch", 5000);
  EXPECT_GE(bytes_of(Category::other), other + 5000);
  EXPECT_LT(bytes_of(Category::workspace), workspace + 5000 + header_bytes);
}

TEST(MemoryLedger, host_arrays_count_where_they_are_the_device_s_memory) {
  const std::size_t before = bytes_of(Category::communication);
  const Kokkos::View<char*, Kokkos::HostSpace> staging(ledger_label(Category::communication, "staging"), 3000);
  if (device_is_host)
    EXPECT_GE(bytes_of(Category::communication), before + 3000);
  else
    EXPECT_EQ(bytes_of(Category::communication), before);
}

TEST(MemoryLedger, the_peak_is_a_snapshot_of_one_moment) {
  MemoryLedger& ledger = MemoryLedger::instance();
  ledger.reset_peak();
  const MemoryByCategory before = ledger.current();
  {
    const auto weights = allocate<char>(Category::weights, "w", 100000);
    const auto gradients = allocate<char>(Category::gradients, "g", 50000);
  }
  {
    const auto gradients = allocate<char>(Category::gradients, "g", 120000);  // more of it, but less in total
  }
  const MemoryByCategory peak = ledger.peak();
  EXPECT_NEAR(static_cast<double>(peak[Category::weights] - before[Category::weights]), 100000, header_bytes);
  EXPECT_NEAR(static_cast<double>(peak[Category::gradients] - before[Category::gradients]), 50000, header_bytes);
  EXPECT_EQ(ledger.current().total(), before.total());
  ledger.reset_peak();
  EXPECT_EQ(ledger.peak().total(), before.total());
}

TEST(MemoryLedger, library_scratch_is_workspace) {
  MemoryLedger& ledger = MemoryLedger::instance();
  const std::size_t before = bytes_of(Category::workspace);
  const std::size_t of_libraries = ledger.library_scratch();
  ledger.record_library_scratch(12345);
  EXPECT_EQ(bytes_of(Category::workspace), before + 12345);
  {
    const Tensor<char, 1> ours("espalier::workspace::scratch", 1000);
    EXPECT_EQ(ledger.library_scratch(), of_libraries + 12345);
    const Tensor<char, 1> another("a library's", 100000);
    EXPECT_NEAR(static_cast<double>(ledger.library_scratch()), static_cast<double>(of_libraries + 112345),
                header_bytes);
  }
  EXPECT_EQ(ledger.library_scratch(), of_libraries + 12345);
}

TEST(MemoryLedger, library_scratch_is_what_kokkos_does_not_explain) {
  MemoryLedger& ledger = MemoryLedger::instance();
  const std::size_t before = ledger.library_scratch();
  std::optional<Tensor<char, 1>> kept;
  ledger.record_library_scratch_of([&] { kept = allocate<char>(Category::workspace, "kept", 64 << 20); });
  EXPECT_LT(ledger.library_scratch(), before + (16 << 20));
}

class Budget : public testing::Test {
 protected:
  void SetUp() override { release_matmul_workspace(); }  // of tests before this one
  // Beyond what is allocated; scratch of libraries does not count.
  static void leave(std::size_t bytes) {
    MemoryLedger& ledger = MemoryLedger::instance();
    ledger.set_budget(ledger.current().total() - ledger.library_scratch() + bytes);
  }
  void TearDown() override { MemoryLedger::instance().set_budget(0); }
};

TEST_F(Budget, is_enforced_and_explained) {
  MemoryLedger& ledger = MemoryLedger::instance();
  const auto activations = allocate<char>(Category::activations, "slots", 3 << 20);
  const auto weights = allocate<char>(Category::weights, "parameters", 2 << 20);
  leave(1 << 20);
  EXPECT_NO_THROW(allocate<char>(Category::weights, "small", 1000));
  const MemoryByCategory before = ledger.current();
  try {
    allocate<float>(Category::gradients, "parameters", 1 << 20);
    FAIL() << "4 MiB were allocated where 1 MiB was left";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::memory);
    const std::string text = error.what();
    for (const char* part : {"does not fit", "4.0 MiB", "gradients", "activations 3.0 MiB", "weights 2.0 MiB",
                             "at most", "run.device_memory", "batch.micro_batch_size"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " is missing in:\n" << text;
  }
  EXPECT_EQ(ledger.current().total(), before.total()) << "nothing was taken";
  ledger.set_budget(0);
  EXPECT_NO_THROW(allocate<float>(Category::gradients, "parameters", 1 << 20));
}

// A View cannot be refused, but the next require_budget() throws.
TEST_F(Budget, an_overflow_past_allocate_is_an_error_at_the_next_question) {
  MemoryLedger& ledger = MemoryLedger::instance();
  leave(1 << 20);
  EXPECT_NO_THROW(ledger.check_budget());
  { const Tensor<char, 1> scratch("espalier::workspace::scratch", 4 << 20); }
  try {
    allocate<char>(Category::weights, "small", 10);
    FAIL() << "4 MiB were allocated where 1 MiB was left";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::memory);
    EXPECT_NE(std::string(error.what()).find("4.0 MiB for espalier::workspace::scratch (workspace)"), std::string::npos)
        << error.what();
  }
  EXPECT_NO_THROW(ledger.check_budget()) << "it is said once";
}

// No prediction knows it, so that what was said to fit would not.
TEST_F(Budget, does_not_count_library_scratch) {
  MemoryLedger& ledger = MemoryLedger::instance();
  leave(1 << 20);
  ledger.record_library_scratch(2 << 20);
  EXPECT_NO_THROW(ledger.check_budget());
  EXPECT_NO_THROW(allocate<char>(Category::weights, "small", 1000));
  EXPECT_THROW(allocate<char>(Category::weights, "large", 2 << 20), Error);
}

TEST(MemoryLedger, resident_memory_follows_what_is_touched) {
  if (!device_is_host)
    GTEST_SKIP() << "the memory of a GPU is not the process's";
  const std::size_t before = resident_bytes();
  EXPECT_GT(before, 0u);
  const auto data = allocate<char>(Category::other, "big", 64 << 20);
  EXPECT_GE(resident_bytes(), before + (60 << 20)) << "first touch reaches every page";
  EXPECT_GE(peak_resident_bytes(), resident_bytes() - (8 << 20));
}

// A tool that the user loads (KOKKOS_TOOLS_LIBS) sees the same events, and the ledger may be installed again.
int user_allocations = 0;
int user_deallocations = 0;

TEST(MemoryLedger, passes_events_on_to_the_user_s_tool) {
  namespace tools = Kokkos::Tools::Experimental;
  const tools::EventSet before = tools::get_callbacks();
  tools::set_allocate_data_callback(
      [](Kokkos_Profiling_SpaceHandle, const char*, const void*, const std::uint64_t) { ++user_allocations; });
  tools::set_deallocate_data_callback(
      [](Kokkos_Profiling_SpaceHandle, const char*, const void*, const std::uint64_t) { ++user_deallocations; });
  MemoryLedger::instance().install();
  MemoryLedger::instance().install();  // again: must not call itself
  const std::size_t bytes = bytes_of(Category::other);
  {
    const auto data = allocate<char>(Category::other, "seen by both", 1000);
    EXPECT_GE(bytes_of(Category::other), bytes + 1000);
  }
  EXPECT_EQ(bytes_of(Category::other), bytes);
  EXPECT_EQ(user_allocations, 1);
  EXPECT_EQ(user_deallocations, 1);
  tools::set_callbacks(before);
}

// As after Kokkos of the embedding program allocated, and before Runtime installed the ledger.
TEST(MemoryLedger, forgetting_what_was_never_counted_does_not_wrap_around) {
  namespace tools = Kokkos::Tools::Experimental;
  const tools::EventSet with_ledger = tools::get_callbacks();
  const std::size_t counted = bytes_of(Category::gradients);
  tools::set_callbacks({});
  {
    const auto uncounted = std::make_unique<Tensor<char, 1>>("espalier::gradients::early", counted + 1000);
    tools::set_callbacks(with_ledger);
  }
  EXPECT_EQ(bytes_of(Category::gradients), 0u);
}

}  // namespace
