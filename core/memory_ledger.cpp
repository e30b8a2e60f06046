// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/memory_ledger.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "core/types.hpp"

namespace espalier {
namespace {

constexpr std::array<const char*, num_categories> names = {"weights",   "gradients",     "optimizer", "activations",
                                                           "workspace", "communication", "other"};
constexpr std::string_view label_prefix = "espalier::";

// The callbacks of Kokkos Tools are plain functions, so what they write to is a variable of this file.
struct LedgerState {
  std::mutex mutex;  // deallocations may come from any thread that drops the last View
  MemoryByCategory current;
  MemoryByCategory peak;
  std::size_t library_scratch = 0;
  std::size_t budget = 0;
  bool shapes_only = false;
  MemoryByCategory shapes;  // recorded since then
  std::string overflow;     // the first allocation past the budget without require_budget(), not yet reported
  Kokkos::Tools::Experimental::EventSet user_tool{};
};
LedgerState& state() {
  static LedgerState instance;
  return instance;
}

bool is_ours(std::string_view label) { return label.starts_with(label_prefix); }

Category category_of(std::string_view label) {
  if (!is_ours(label))
    return Category::workspace;  // Kokkos' own scratch and that of libraries on it
  label.remove_prefix(label_prefix.size());
  for (std::size_t i = 0; i < num_categories; ++i)
    if (label.starts_with(names[i]))
      return static_cast<Category>(i);
  return Category::other;
}

// Of an accelerator its own memory is counted, not that of the host beside it.
bool is_counted(const Kokkos_Profiling_SpaceHandle& space) {
  return exec_is_host || std::string_view(space.name) == MemSpace::name();
}

// Call with the lock held.
void add_bytes(Category category, std::string_view label, std::size_t bytes) {
  LedgerState& ledger = state();
  ledger.current.bytes[static_cast<std::size_t>(category)] += bytes;
  if (!is_ours(label))
    ledger.library_scratch += bytes;
  if (ledger.current.total() > ledger.peak.total())
    ledger.peak = ledger.current;
  if (ledger.budget > 0 && ledger.current.total() - ledger.library_scratch > ledger.budget && ledger.overflow.empty())
    ledger.overflow = fmt::format("{} for {} ({})", bytes_text(bytes), label, to_string(category));
}

[[noreturn]] void throw_over_budget(const std::string& allocation, const MemoryByCategory& need, std::size_t budget) {
  throw Error(
      ExitCode::memory,
      {.what = "the model does not fit the memory budget",
       .where = "allocating " + allocation,
       .got = fmt::format("{} needed so far: {}", bytes_text(need.total()), biggest_categories(need)),
       .wanted = fmt::format("at most {} (run.device_memory)", bytes_text(budget)),
       .todo = "use a smaller batch.micro_batch_size or batch.sequence_length, a smaller model, or raise the budget"});
}

void on_allocate(const Kokkos_Profiling_SpaceHandle space, const char* label, const void* data,
                 const std::uint64_t bytes) {
  if (is_counted(space)) {
    const std::lock_guard lock(state().mutex);
    add_bytes(category_of(label), label, bytes);
  }
  if (state().user_tool.allocate_data != nullptr)
    state().user_tool.allocate_data(space, label, data, bytes);
}

void on_deallocate(const Kokkos_Profiling_SpaceHandle space, const char* label, const void* data,
                   const std::uint64_t bytes) {
  if (is_counted(space)) {
    const std::lock_guard lock(state().mutex);
    std::size_t& counted = state().current.bytes[static_cast<std::size_t>(category_of(label))];
    // It may have been allocated before install(), and then counts nowhere.
    const auto freed = std::min<std::size_t>(is_ours(label) ? counted : state().library_scratch, bytes);
    counted -= freed;
    if (!is_ours(label))
      state().library_scratch -= freed;
  }
  if (state().user_tool.deallocate_data != nullptr)
    state().user_tool.deallocate_data(space, label, data, bytes);
}

}  // namespace

const char* to_string(Category category) { return names[static_cast<std::size_t>(category)]; }

std::size_t MemoryByCategory::total() const { return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}); }

std::string ledger_label(Category category, std::string_view name) {
  return fmt::format("{}{}::{}", label_prefix, to_string(category), name);
}

MemoryLedger& MemoryLedger::instance() {
  static MemoryLedger ledger;
  return ledger;
}

void MemoryLedger::install() {
  namespace tools = Kokkos::Tools::Experimental;
  const tools::EventSet present = tools::get_callbacks();
  if (present.allocate_data != on_allocate)  // installed again: the tool behind is known already
    state().user_tool = present;
  tools::set_allocate_data_callback(on_allocate);
  tools::set_deallocate_data_callback(on_deallocate);
}

bool MemoryLedger::shapes_only() const { return state().shapes_only; }

void MemoryLedger::record_shape(Category category, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  state().shapes.bytes[static_cast<std::size_t>(category)] += bytes;
  state().current.bytes[static_cast<std::size_t>(category)] += bytes;
}

ShapesOnly::ShapesOnly() {
  ESPALIER_ASSERT(!state().shapes_only, "one at a time");
  state().shapes_only = true;
}

ShapesOnly::~ShapesOnly() {
  const std::lock_guard lock(state().mutex);
  for (std::size_t i = 0; i < num_categories; ++i)
    state().current.bytes[i] -= state().shapes.bytes[i];
  state().shapes = {};
  state().shapes_only = false;
}

MemoryByCategory MemoryLedger::current() const {
  const std::lock_guard lock(state().mutex);
  return state().current;
}

MemoryByCategory MemoryLedger::peak() const {
  const std::lock_guard lock(state().mutex);
  return state().peak;
}

void MemoryLedger::reset_peak() {
  const std::lock_guard lock(state().mutex);
  state().peak = state().current;
}

std::size_t MemoryLedger::library_scratch() const {
  const std::lock_guard lock(state().mutex);
  return state().library_scratch;
}

void MemoryLedger::record_library_scratch(std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  add_bytes(Category::workspace, "what a library keeps", bytes);
}

void MemoryLedger::set_budget(std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  state().budget = bytes;
  state().overflow.clear();
}

std::size_t MemoryLedger::budget() const {
  const std::lock_guard lock(state().mutex);
  return state().budget;
}

void MemoryLedger::check_budget() const {
  const std::lock_guard lock(state().mutex);
  if (state().overflow.empty())
    return;
  MemoryByCategory need = state().peak;
  std::size_t& workspace = need.bytes[static_cast<std::size_t>(Category::workspace)];
  workspace -= std::min(workspace, state().library_scratch);
  throw_over_budget(std::exchange(state().overflow, ""), need, state().budget);
}

void MemoryLedger::require_budget(Category category, const std::string& name, std::size_t bytes) const {
  check_budget();
  MemoryByCategory need = current();
  need.bytes[static_cast<std::size_t>(category)] += bytes;
  need.bytes[static_cast<std::size_t>(Category::workspace)] -= library_scratch();  // which no prediction knows
  if (const std::size_t limit = budget(); limit > 0 && need.total() > limit)
    throw_over_budget(fmt::format("{} for {} ({})", bytes_text(bytes), name, to_string(category)), need, limit);
}

std::size_t resident_bytes() {
#ifdef __GLIBC__
  malloc_trim(0);  // else what was freed a moment ago still counts
#endif
  std::size_t pages = 0;
  std::size_t resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr)
    return 0;
  const int fields = std::fscanf(file, "%zu %zu", &pages, &resident);
  std::fclose(file);
  return fields == 2 ? resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

std::size_t peak_resident_bytes() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::size_t>(usage.ru_maxrss) * 1024 : 0;
}

}  // namespace espalier
