// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "parallel/observe/step_observer.hpp"

namespace espalier {

/// Where a rank is: what it does, or what it waits for and for whom. It has a fixed size and no pointers, so that it
/// can lie in a mapped file, and be read while the rank runs and after it was killed.
struct RankProgress {
  static constexpr std::uint32_t magic_number = 0x50505345;  // "ESPP"
  static constexpr std::uint32_t current_version = 3;
  static constexpr int max_peers = 8;
  struct Collectives {
    std::uint32_t communicator = 0;  ///< CommunicatorState::id; 0: none
    std::uint32_t begun = 0;
  };

  std::uint32_t magic = magic_number;
  std::uint32_t version = current_version;
  std::uint32_t writes = 0;  ///< odd while it is being written
  std::int32_t rank = 0;     ///< of the world
  std::int32_t world_size = 1;
  std::int32_t pid = 0;
  std::int64_t step = -1;             ///< -1: before the first
  std::int32_t operation_index = -1;  ///< in the schedule's list; -1: none
  std::int32_t chunk = -1;
  std::int32_t microbatch = -1;
  std::int32_t waiting = 0;
  std::int32_t finished = 0;   ///< this rank may exit
  std::int32_t num_peers = 0;  ///< waited for; may be more than are kept
  std::array<std::int32_t, max_peers> peers{};
  std::uint64_t sequence = 0;  ///< messages sent so far on the communicator waited on
  double since = 0;            ///< of this operation or wait; seconds of the system clock
  std::array<char, 64> host{};
  std::array<char, 64> operation{};
  std::array<char, 112> waits_for{};
  std::array<char, 64> communicator{};
  double alive = 0;        ///< last write, seconds of the system clock: a rank that waits writes about every second
  Collectives waited_for;  ///< the library's collective, by its number on the communicator; names no peers
  std::array<Collectives, 32> collectives{};  ///< of the communicators that this rank is in: how many have begun
};
static_assert(sizeof(RankProgress) <= 1024 && std::is_trivially_copyable_v<RankProgress>);

/// Writes the progress of this rank. No allocation, a fraction of a microsecond each; from any thread.
class ProgressWriter : public StepObserver {
 public:
  ProgressWriter() = default;
  ProgressWriter(const ProgressWriter& other) : StepObserver(other) { *this = other; }
  ProgressWriter& operator=(const ProgressWriter& other);

  /// Continues in `target` (nullptr: in memory of its own), with what is known so far.
  void keep_in(RankProgress* target);

  void set_rank(int rank, int world_size);  ///< also host and process
  void step_begins(std::int64_t step) override;
  void operation_begins(int index, std::string_view what, int chunk, int microbatch) override;
  void wait_begins(std::string_view what, std::string_view communicator, std::uint64_t sequence,
                   std::span<const int> world_ranks) override;
  void wait_goes_on(std::span<const int> world_ranks) override;
  void wait_ends() override;
  void collective_begins(std::uint32_t communicator, std::uint64_t number) override;
  void collective_waits(std::uint32_t communicator, std::uint64_t number) override;
  void communicator_ends(std::uint32_t communicator) override;

  /// A stream of the device has waited for so many seconds: said while the host does not wait itself.
  void enter_stream_wait(std::string_view what, std::string_view communicator, std::uint64_t sequence,
                         std::span<const int> world_ranks, double seconds);
  void leave_stream_wait();
  void show_life();  ///< this process runs

  void mark_finished();  ///< this rank has done all it had to do

  /// What was written last.
  const RankProgress& current() const { return *current_; }

 private:
  template <class F>
  void write(const F& change);
  void show_wait(RankProgress& progress) const;

  std::mutex mutex_;
  RankProgress own_;
  RankProgress* current_ = &own_;
  bool host_waits_ = false;
  bool stream_waits_ = false;
  RankProgress stream_wait_;  // only its fields about the wait
};

/// A copy of what another process may be writing. If that process died while it wrote, what there is.
RankProgress read_progress(const RankProgress& shared);

/// One line for each rank: where it is. A last line names the likely culprit: a rank that others wait for, directly or
/// along a chain, and that does not wait itself or has given no sign of life for seconds.
/// @param now seconds of the system clock; 0: the time of the last sign of life of any rank.
std::string progress_report(std::span<const RankProgress> ranks, double now = 0);

/// Does a text hold such a report, which names a culprit or says that there is none?
bool names_culprit(std::string_view text);

}  // namespace espalier
