// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace espalier {

/// What memory is for. The same words in every report.
enum class Category { weights, gradients, optimizer, activations, workspace, communication, other };
inline constexpr std::size_t num_categories = 7;
const char* to_string(Category category);

/// Bytes by category; index with static_cast<std::size_t>(Category).
struct MemoryByCategory {
  std::array<std::size_t, num_categories> bytes{};
  std::size_t total() const;
  std::size_t operator[](Category category) const { return bytes[static_cast<std::size_t>(category)]; }
};

/// The Kokkos label of an allocation, "espalier::weights::name": the ledger reads the category back from it.
std::string ledger_label(Category category, std::string_view name);

/// Counts every byte that the process allocates through Kokkos where it computes (on a GPU: the GPU's memory), ours by
/// category, a library's as workspace.
/// One ledger a process, as the allocations it counts are the process's; it hooks the allocation callbacks of
/// Kokkos Tools and passes them on to a tool that the user loaded.
class MemoryLedger {
 public:
  static MemoryLedger& instance();

  /// Starts counting; call after Kokkos::initialize and before the first allocation of ours. May be called again. What
  /// a program allocated before is not counted, nor is its release.
  void install();

  /// What lies in memory now, and what lay there when the total was largest.
  MemoryByCategory current() const;
  MemoryByCategory peak() const;
  void reset_peak();

  /// The part of the workspace that is not ours and that nobody can predict: scratch of Kokkos, and what
  /// record_library_scratch() has entered.
  std::size_t library_scratch() const;

  /// Bytes that a library keeps outside Kokkos (packing buffers of a BLAS): counted from here on.
  void record_library_scratch(std::size_t bytes);

  /// Enters what stays resident of `run` beyond what it allocated through Kokkos and keeps: the libraries' own.
  template <class F>
  void record_library_scratch_of(const F& run);

  /// Largest total allowed without library scratch (0: no limit): what is predicted to fit does. A budget makes "does
  /// not fit" testable on any machine. allocate() asks before it allocates; any other allocation through Kokkos is
  /// noticed when it is made, and is an error at the next allocate() or check_budget(): the callbacks of Kokkos Tools
  /// cannot refuse.
  void set_budget(std::size_t bytes);
  std::size_t budget() const;

  /// While a ShapesOnly lives.
  bool shapes_only() const;
  /// What allocate() would have allocated. @pre shapes_only()
  void record_shape(Category category, std::size_t bytes);

  /// @throws Error (ExitCode::memory), once, when an allocation since then has passed the budget.
  void check_budget() const;

  /// @throws Error (ExitCode::memory) with need, budget and the biggest categories when `bytes` more do not fit, and as
  /// check_budget().
  void require_budget(Category category, const std::string& name, std::size_t bytes) const;

 private:
  MemoryLedger() = default;
};

/// While one lives, allocate() only enters its bytes in the ledger and returns tensors without memory, as on PyTorch's
/// meta device: running the code that allocates a model counts its bytes. Nothing may compute. Afterwards the ledger is
/// as before.
class ShapesOnly {
 public:
  ShapesOnly();
  ~ShapesOnly();
  ShapesOnly(const ShapesOnly&) = delete;
  ShapesOnly& operator=(const ShapesOnly&) = delete;
};

/// Resident memory of this process, after free memory has gone back, and its high-water mark, from the operating
/// system; 0 where unknown.
std::size_t resident_bytes();
std::size_t peak_resident_bytes();

template <class F>
void MemoryLedger::record_library_scratch_of(const F& run) {
  const std::size_t before = resident_bytes();
  const std::size_t counted_before = current().total();
  run();
  const std::size_t after = resident_bytes() + counted_before;
  const std::size_t explained = before + current().total();
  record_library_scratch(after > explained ? after - explained : 0);
}

}  // namespace espalier
