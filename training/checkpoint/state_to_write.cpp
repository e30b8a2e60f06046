// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/state_to_write.hpp"

#include "core/error.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "parallel/reduction/unique_ranges.hpp"

namespace espalier {
namespace {

// `host`: a copy of the array.
void add(StateToWrite& state, const std::vector<Parameter>& parameters, const FlatArray& array,
         const std::vector<IndexRange>& unique, const unsigned char* host) {
  const auto more = blocks_to_write(parameters, array, host, unique);
  state.blocks.insert(state.blocks.end(), more.begin(), more.end());
}

std::vector<std::string> names_of(const std::vector<Parameter>& parameters, const std::vector<UniqueArray>& arrays) {
  std::vector<std::string> names;
  for (const UniqueArray& array : arrays)
    for (const Parameter& parameter : parameters)
      names.push_back(tensor_name(array.array.group, parameter.spec.name));
  return names;
}

// Calls visit(position in the array, position in its packed copy, size) for each unique run.
template <class Visit>
void for_each_unique_run(const UniqueArray& array, const Visit& visit) {
  Index packed = 0;
  for (const IndexRange& run : array.unique) {
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
  ESPALIER_ASSERT(packed == total_size(array.unique),
                  "espalier::StateCopy: elements of " + array.array.group + " are to be written here but not held");
}

}  // namespace

StateToWrite view_state(const ExecSpace& exec, const std::vector<Parameter>& parameters,
                        const std::vector<UniqueArray>& arrays) {
  StateToWrite state;
  state.tensors = names_of(parameters, arrays);
  for (const UniqueArray& array : arrays) {
    if (array.unique.empty())
      continue;
    const auto host = state.memory.emplace_back(Kokkos::create_mirror_view(array.array.bytes));
    Kokkos::deep_copy(exec, host, array.array.bytes);
    add(state, parameters, array.array, array.unique, host.data());
  }
  compat::fence(exec, "espalier::view_state: the host reads what it has been given");
  return state;
}

StateCopy::StateCopy(const std::vector<Parameter>& parameters, const std::vector<UniqueArray>& arrays)
    : arrays_(arrays) {
  state_.tensors = names_of(parameters, arrays);
  for (const UniqueArray& array : arrays_) {
    const std::size_t bytes = static_cast<std::size_t>(total_size(array.unique)) * size_of(array.array.type);
    const std::string name = "checkpoint_copy_" + array.array.group;
    if (exec_is_host)
      MemoryLedger::instance().require_budget(Category::other, name, bytes);
    const auto host = copies_.emplace_back(ledger_label(Category::other, name), bytes);
    FlatArray packed = array.array;
    packed.held = array.unique;
    add(state_, parameters, packed, array.unique, host.data());
  }
}

void StateCopy::take(const ExecSpace& exec) {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    const auto element_bytes = static_cast<Index>(size_of(arrays_[i].array.type));
    const auto part = [&](const auto& bytes, Index begin, Index size) {
      return Kokkos::subview(bytes, std::pair(begin * element_bytes, (begin + size) * element_bytes));
    };
    for_each_unique_run(arrays_[i], [&](Index from, Index to, Index size) {
      Kokkos::deep_copy(exec, part(copies_[i], to, size), part(arrays_[i].array.bytes, from, size));
    });
  }
  compat::fence(exec, "espalier::StateCopy: training goes on when the copy is complete");
}

}  // namespace espalier
