// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/scalars.hpp"
#include "io/file.hpp"

// What the .cpp files that call HDF5 share; no other header includes it.
namespace espalier::hdf5 {

static_assert(sizeof(hid_t) == sizeof(std::int64_t));

/// An HDF5 identifier that is closed by the right function. What must be checked is closed by close().
template <herr_t (*close_function)(hid_t)>
class Handle {
 public:
  explicit Handle(hid_t id) : id_(id) {}
  Handle(const Handle&) = delete;
  ~Handle() {
    if (id_ >= 0)
      close_function(id_);
  }
  operator hid_t() const { return id_; }
  bool close() { return close_function(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_;
};
using File = Handle<H5Fclose>;
using Group = Handle<H5Gclose>;
using Dataset = Handle<H5Dclose>;
using Object = Handle<H5Oclose>;
using Dataspace = Handle<H5Sclose>;
using Datatype = Handle<H5Tclose>;
using PropertyList = Handle<H5Pclose>;

/// The right to call HDF5, after it has been set up; whoever comes second waits. HDF5 is not thread-safe where sites
/// build it, and a save may go on behind the training.
std::unique_lock<std::recursive_mutex> enter();

/// The innermost message of HDF5's error stack; where a system call failed, its reason.
std::string message();

/// Error (write) with that message.
[[noreturn]] void throw_write_error(const std::string& what, const Path& path);

/// Of files that Espalier writes and reads: checksummed metadata (format V110).
hid_t file_access();
/// So that the same content gives the same bytes.
hid_t file_creation();
/// Makes the groups in an object's name that are not there yet, also without times (those that HDF5 makes on its own
/// carry the second they were made in); false if it could not.
bool create_parents(hid_t file, const std::string& name);

hid_t stored_type(ScalarType type);
std::vector<hsize_t> to_extents(const std::vector<Index>& shape);

}  // namespace espalier::hdf5
