// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/support/fake_cuda/call.hpp"
#include "tests/support/fake_cuda/report.hpp"

namespace fake_cuda {

/// Objects of one kind that the program has handles of. They outlive their destruction, so that their later use is
/// seen.
template <class Handle, class Object>
class Handles {
 public:
  explicit Handles(const char* kind) : kind_(kind) {}

  Handle add(std::shared_ptr<Object> object, const std::string& name) {
    const auto handle = reinterpret_cast<Handle>(object.get());
    entries_[handle] = {std::move(object), name};
    return handle;
  }

  /// Refuses the call `what` where there is no such object, or it was destroyed.
  Object& find(Handle handle, const std::string& what) const { return *entry(handle, what).object; }

  void destroy(Handle handle, const std::string& what) { entry(handle, what).is_destroyed = true; }

  void tell_leaked() const {
    for (const auto& [handle, entry] : entries_)
      if (!entry.is_destroyed)
        misuse(entry.name + " was never destroyed");
  }

 private:
  struct Entry {
    std::shared_ptr<Object> object;
    std::string name;
    mutable bool is_destroyed = false;
  };

  const Entry& entry(Handle handle, const std::string& what) const {
    const auto found = entries_.find(handle);
    if (found == entries_.end())
      refuse(cudaErrorInvalidResourceHandle, what + " with a handle that is no " + kind_);
    if (found->second.is_destroyed)
      refuse(cudaErrorInvalidResourceHandle, what + " with " + found->second.name + ", which was destroyed");
    return found->second;
  }

  const char* kind_;
  std::map<Handle, Entry> entries_;
};

}  // namespace fake_cuda
