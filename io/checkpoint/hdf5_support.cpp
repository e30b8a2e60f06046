// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/hdf5_support.hpp"

#include <cstdlib>

namespace espalier::hdf5 {

// Without H5dont_atexit a close that failed (disk full) ends in a crash at exit. HDF5's own file locks fail on parallel
// file systems and guard nothing here: files appear by rename.
std::unique_lock<std::recursive_mutex> enter() {
  static std::recursive_mutex mutex;
  std::unique_lock lock(mutex);
  [[maybe_unused]] static const bool once = [] {
    ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
    H5dont_atexit();
    H5open();
    H5PLset_loading_state(0);  // loads no code that a file asks for
    return true;
  }();
  // The library prints nothing: error stacks are a thread's own where it is built thread-safe.
  [[maybe_unused]] static const thread_local bool silent = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  return lock;
}

namespace {

// What the library's innermost error says.
std::string innermost_error() {
  std::string text = "HDF5 gives no reason";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned position, const H5E_error2_t* error, void* client) -> herr_t {
        if (position == 0 && error->desc != nullptr)
          *static_cast<std::string*>(client) = error->desc;
        return 0;
      },
      &text);
  return text;
}

// The number of the operating system's error that it names, 0 if it names none.
int errno_in(const std::string& text) {
  const std::string label = "errno = ";
  const std::size_t at = text.find(label);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + label.size());
}

}  // namespace

std::string message() {
  const std::string text = innermost_error();
  const int number = errno_in(text);
  return number == 0 ? text : system_message(number);
}

void throw_write_error(const std::string& what, const Path& path) {
  if (const int number = errno_in(innermost_error()))
    espalier::throw_write_error(what, path, number);
  throw Error(ExitCode::write, {.what = what,
                                .where = path.string(),
                                .got = message(),
                                .wanted = "a place that this process can write to",
                                .todo = "free some space there or choose another directory"});
}

hid_t file_access() {
  const hid_t list = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(list, H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_fclose_degree(list, H5F_CLOSE_STRONG);
  H5Pset_alignment(list, 65536, 4096);  // large datasets start on a page
  return list;
}

hid_t file_creation() {
  const hid_t list = H5Pcreate(H5P_FILE_CREATE);
  H5Pset_obj_track_times(list, false);
  return list;
}

bool create_parents(hid_t file, const std::string& name) {
  const PropertyList creation(H5Pcreate(H5P_GROUP_CREATE));
  H5Pset_obj_track_times(creation, false);
  for (std::size_t end = name.find('/'); end != std::string::npos; end = name.find('/', end + 1)) {
    const std::string parent = name.substr(0, end);
    if (H5Lexists(file, parent.c_str(), H5P_DEFAULT) > 0)
      continue;
    if (Group(H5Gcreate2(file, parent.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT)) < 0)
      return false;
  }
  return true;
}

hid_t stored_type(ScalarType type) {
  switch (type) {
    case ScalarType::fp32: return H5T_IEEE_F32LE;
    case ScalarType::fp64: return H5T_IEEE_F64LE;
    case ScalarType::bf16:
    case ScalarType::fp16: return H5T_STD_U16LE;  // their bits: HDF5 knows no bfloat16, nor fp16 before version 1.14.4
  }
  return -1;
}

std::vector<hsize_t> to_extents(const std::vector<Index>& shape) { return {shape.begin(), shape.end()}; }

}  // namespace espalier::hdf5
