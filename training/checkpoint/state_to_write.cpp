// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/state_to_write.hpp"

#include "core/error.hpp"
#include "parallel/reduction/counted_ranges.hpp"

namespace espalier {
namespace {

template <class S>
void add(StateToWrite<S>& state, const std::vector<Parameter>& parameters, const CountedArray<S>& array, const S* host,
         const std::vector<IndexRange>& held) {
  const auto more = blocks_to_write(parameters, array.array.group, host, held, array.counted);
  state.blocks.insert(state.blocks.end(), more.begin(), more.end());
}

template <class S>
std::vector<std::string> names_of(const std::vector<Parameter>& parameters,
                                  const std::vector<CountedArray<S>>& arrays) {
  std::vector<std::string> names;
  for (const CountedArray<S>& array : arrays)
    for (const Parameter& parameter : parameters)
      names.push_back(stored_name(array.array.group, parameter));
  return names;
}

// Calls visit(position in the array, position in its packed copy, size) for each counted run.
template <class S, class Visit>
void for_each_counted(const CountedArray<S>& array, const Visit& visit) {
  Index packed = 0;
  for (const IndexRange& run : array.counted) {
    Index base = 0;
    for (const IndexRange& held : array.array.held) {
      const IndexRange part = intersection(run, held);
      if (part.size() > 0) {
        visit(base + part.begin - held.begin, packed, part.size());
        packed += part.size();
      }
      base += held.size();
    }
  }
  ESPALIER_ASSERT(packed == total_size(array.counted),
                  "espalier::StateCopy: elements of " + array.array.group + " are counted here but not held");
}

}  // namespace

template <class S>
StateToWrite<S> view_state(const ExecSpace& exec, const std::vector<Parameter>& parameters,
                           const std::vector<CountedArray<S>>& arrays) {
  StateToWrite<S> state;
  state.tensors = names_of(parameters, arrays);
  for (const CountedArray<S>& array : arrays) {
    if (array.counted.empty())
      continue;
    const auto host = state.memory.emplace_back(Kokkos::create_mirror_view(array.array.data));
    Kokkos::deep_copy(exec, host, array.array.data);
    add(state, parameters, array, host.data(), array.array.held);
  }
  compat::fence(exec, "espalier::view_state: the host reads what it has been given");
  return state;
}

template <class S>
StateCopy<S>::StateCopy(const std::vector<Parameter>& parameters, const std::vector<CountedArray<S>>& arrays)
    : arrays_(arrays) {
  state_.tensors = names_of(parameters, arrays);
  for (const CountedArray<S>& array : arrays_) {
    const auto size = static_cast<std::size_t>(total_size(array.counted));
    const std::string name = "checkpoint_copy_" + array.array.group;
    if (exec_is_host)
      MemoryLedger::instance().require_room(Category::other, name, size * sizeof(S));
    const auto host = copies_.emplace_back(ledger_label(Category::other, name), size);
    add(state_, parameters, array, host.data(), array.counted);
  }
}

template <class S>
void StateCopy<S>::take(const ExecSpace& exec) {
  for (std::size_t i = 0; i < arrays_.size(); ++i)
    for_each_counted(arrays_[i], [&](Index from, Index to, Index size) {
      Kokkos::deep_copy(exec, Kokkos::subview(copies_[i], std::pair(to, to + size)),
                        Kokkos::subview(arrays_[i].array.data, std::pair(from, from + size)));
    });
  compat::fence(exec, "espalier::StateCopy: training goes on when the copy is complete");
}

#define ESPALIER_INSTANTIATE(S)                                                           \
  template StateToWrite<S> view_state<S>(const ExecSpace&, const std::vector<Parameter>&, \
                                         const std::vector<CountedArray<S>>&);            \
  template class StateCopy<S>;
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
