// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/hdf5_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace espalier {
namespace {

static_assert(sizeof(hid_t) == sizeof(std::int64_t));

// An HDF5 identifier that is closed by the right function. What must be checked is closed by close().
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
using Dataset = Handle<H5Dclose>;
using Dataspace = Handle<H5Sclose>;
using Datatype = Handle<H5Tclose>;
using PropertyList = Handle<H5Pclose>;

// Once, before any other call. Without H5dont_atexit a close that failed (disk full) ends in a crash at exit.
// HDF5's own file locks fail on parallel file systems and guard nothing here: files appear by rename.
void initialize_hdf5() {
  [[maybe_unused]] static const bool done = [] {
    ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);
    H5dont_atexit();
    H5open();
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // the library prints nothing
    H5PLset_loading_state(0);                     // and loads no code that a file asks for
    return true;
  }();
}

// The innermost message of HDF5's error stack: where a system call failed, it names errno.
std::string hdf5_message() {
  std::string message = "HDF5 gives no reason";
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_UPWARD,
      [](unsigned position, const H5E_error2_t* error, void* client) -> herr_t {
        if (position == 0 && error->desc != nullptr)
          *static_cast<std::string*>(client) = error->desc;
        return 0;
      },
      &message);
  return message;
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

hid_t file_access() {
  const hid_t list = H5Pcreate(H5P_FILE_ACCESS);
  H5Pset_libver_bounds(list, H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_fclose_degree(list, H5F_CLOSE_STRONG);
  H5Pset_alignment(list, 65536, 4096);  // large datasets start on a page
  return list;
}

std::vector<hsize_t> to_extents(const std::vector<Index>& shape) { return {shape.begin(), shape.end()}; }

std::string to_text(const std::vector<Index>& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

}  // namespace

Hdf5Writer::Hdf5Writer(const Path& path) : path_(path) {
  initialize_hdf5();
  const PropertyList access(file_access());
  const PropertyList creation(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_obj_track_times(creation, false);  // the same content gives the same bytes
  file_ = H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation, access);
  if (file_ < 0)
    fail("cannot create a checkpoint file");
}

Hdf5Writer::~Hdf5Writer() {
  if (file_ < 0)
    return;
  H5Fclose(file_);
  // Not closed by close(): the file is of no use. HDF5 may keep it open after a failed write, so give its
  // space back.
  std::error_code ignored;
  std::filesystem::resize_file(path_, 0, ignored);
  std::filesystem::remove(path_, ignored);
}

void Hdf5Writer::fail(const std::string& what) const {
  const std::string message = hdf5_message();
  const std::string reason = message.find("errno = ") == std::string::npos ? message : [&] {
    return system_message(std::atoi(message.c_str() + message.find("errno = ") + 8));
  }();
  throw Error(ExitCode::write, {.what = what,
                                .where = path_.string(),
                                .got = reason,
                                .todo = "free some space there or choose another directory"});
}

DatasetPlace Hdf5Writer::write(const std::string& name, ScalarType type, const std::vector<Index>& shape,
                               const void* data) {
  ESPALIER_ASSERT(file_ >= 0, "the file is closed");
  const auto extents = to_extents(shape);
  const Dataspace space(extents.empty() ? H5Screate(H5S_SCALAR)
                                        : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
  const PropertyList links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links, 1);
  const PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_layout(creation, H5D_CONTIGUOUS);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);  // so that its place is known
  H5Pset_obj_track_times(creation, false);
  Dataset dataset(H5Dcreate2(file_, name.c_str(), stored_type(type), space, links, creation, H5P_DEFAULT));
  if (dataset < 0 || H5Dwrite(dataset, stored_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
    fail("cannot write a checkpoint file: dataset " + name);
  const DatasetPlace place{static_cast<Index>(H5Dget_offset(dataset)),
                           static_cast<Index>(H5Dget_storage_size(dataset))};
  if (!dataset.close())
    fail("cannot write a checkpoint file: dataset " + name);
  return place;
}

void Hdf5Writer::close() {
  if (H5Fclose(file_) < 0)
    fail("cannot close a checkpoint file");
  file_ = -1;
  sync_file(path_);
}

Hdf5Reader::Hdf5Reader(const Path& path) : path_(path) {
  initialize_hdf5();
  const PropertyList access(file_access());
  file_ = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access);
  if (file_ < 0)
    refuse("", "a checkpoint file cannot be opened", hdf5_message(), "an HDF5 file");
}

Hdf5Reader::~Hdf5Reader() {
  if (file_ >= 0)
    H5Fclose(file_);
}

void Hdf5Reader::refuse(const std::string& dataset, std::string what, std::string got, std::string wanted) const {
  throw Error(ExitCode::checkpoint,
              {.what = std::move(what),
               .where = path_.string() + (dataset.empty() ? "" : ": dataset " + dataset),
               .got = std::move(got),
               .wanted = std::move(wanted),
               .todo = "use another checkpoint; this one was damaged or not written by Espalier"});
}

void Hdf5Reader::read(const std::string& name, ScalarType type, const std::vector<Index>& shape, DatasetPlace place,
                      void* destination) const {
  // Soft and external links could lead to another file.
  for (std::size_t end = name.find('/');; end = name.find('/', end + 1)) {
    H5L_info_t link = {};
    const std::string prefix = name.substr(0, end);
    if (H5Lget_info(file_, prefix.c_str(), &link, H5P_DEFAULT) < 0)
      refuse(name, "a dataset is missing", hdf5_message(), "the dataset that the manifest names");
    if (link.type != H5L_TYPE_HARD)
      refuse(name, "a dataset is reached through a link", "a soft or external link at " + prefix, "hard links only");
    if (end == std::string::npos)
      break;
  }
  const Dataset dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT));
  if (dataset < 0)
    refuse(name, "a dataset cannot be opened", hdf5_message(), "a readable dataset");

  const PropertyList creation(H5Dget_create_plist(dataset));
  if (creation < 0 || H5Pget_layout(creation) != H5D_CONTIGUOUS)
    refuse(name, "a dataset is not contiguous", "a chunked, compact or virtual dataset", "a contiguous dataset");
  if (H5Pget_external_count(creation) != 0)
    refuse(name, "a dataset lies outside its file", "external storage", "data inside the file");
  if (H5Pget_nfilters(creation) != 0)
    refuse(name, "a dataset is filtered", "filters (compression)", "no filters");

  const Datatype found_type(H5Dget_type(dataset));
  if (found_type < 0 || H5Tequal(found_type, stored_type(type)) <= 0)
    refuse(name, "a dataset has another type", "another HDF5 type", espalier::to_string(type));
  const Dataspace space(H5Dget_space(dataset));
  const int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> extents(rank > 0 ? static_cast<std::size_t>(rank) : 0);
  if (rank > 0)
    H5Sget_simple_extent_dims(space, extents.data(), nullptr);
  const bool is_null = space < 0 || H5Sget_simple_extent_type(space) == H5S_NULL;
  if (rank < 0 || is_null || extents != to_extents(shape))
    refuse(name, "a dataset has another shape", to_text(std::vector<Index>(extents.begin(), extents.end())),
           to_text(shape));
  const DatasetPlace found{static_cast<Index>(H5Dget_offset(dataset)),
                           static_cast<Index>(H5Dget_storage_size(dataset))};
  if (found.offset != place.offset || found.bytes != place.bytes)
    refuse(name, "a dataset lies elsewhere in its file", fmt::format("{} bytes at {}", found.bytes, found.offset),
           fmt::format("{} bytes at {}", place.bytes, place.offset));
  if (H5Dread(dataset, stored_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, destination) < 0)
    refuse(name, "a dataset cannot be read", hdf5_message(), "readable data");
}

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace espalier
