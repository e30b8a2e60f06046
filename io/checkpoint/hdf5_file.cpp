// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/hdf5_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "io/checkpoint/hdf5_support.hpp"

namespace espalier {
namespace {

[[maybe_unused]] constexpr Index step = Index{16} << 20;     // bytes to ask for at a time
[[maybe_unused]] constexpr Index window = Index{128} << 20;  // bytes that may be on their way

using hdf5::Dataset, hdf5::Dataspace, hdf5::Object, hdf5::PropertyList, hdf5::enter, hdf5::file_access,
    hdf5::create_parents, hdf5::file_creation, hdf5::stored_type, hdf5::to_extents;

DatasetExtent dataset_extent(hid_t dataset) {
  return {static_cast<Index>(H5Dget_offset(dataset)), static_cast<Index>(H5Dget_storage_size(dataset))};
}

// HDF5's own, of the file that its serial driver has opened; negative: none.
int descriptor_of(hid_t file) {
  void* descriptor = nullptr;
  const bool known = H5Fget_vfd_handle(file, H5P_DEFAULT, &descriptor) >= 0 && descriptor != nullptr;
  return known ? *static_cast<const int*>(descriptor) : -1;
}

}  // namespace

void WriteBehind::wrote([[maybe_unused]] int descriptor, [[maybe_unused]] Index end) {
#ifdef __linux__
  if (end - begun_ < step)
    return;
  ::sync_file_range(descriptor, begun_, end - begun_, SYNC_FILE_RANGE_WRITE);
  begun_ = end;
  const Index size = begun_ - window - taken_;
  if (size <= 0)
    return;
  constexpr unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  // Where the file system knows no ranges, fsync does it all.
  if (::sync_file_range(descriptor, taken_, size, wait) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
    throw_write_error("cannot write a file", path_, errno);
  ::posix_fadvise(descriptor, taken_, size, POSIX_FADV_DONTNEED);
  taken_ += size;
#endif
}

Hdf5Writer::Hdf5Writer(const Path& path, Open open) : path_(path), write_behind_(path) {
  const auto turn = enter();
  std::error_code error;
  if (open == Open::append && !std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error)))
    throw Error(ExitCode::write, {.what = "a checkpoint file to append to is not a regular file",
                                  .where = path.string(),
                                  .got = "a link, a directory or nothing",
                                  .wanted = "the file that the previous writer closed",
                                  .todo = "no other program may write in the run's directory"});
  const PropertyList access(file_access());
  const PropertyList creation(file_creation());
  file_ = open == Open::create ? H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation, access)
                               : H5Fopen(path.c_str(), H5F_ACC_RDWR, access);
  if (file_ < 0)
    hdf5::throw_write_error(
        open == Open::create ? "cannot create a checkpoint file" : "cannot append to a checkpoint file", path);
}

Hdf5Writer::~Hdf5Writer() {
  if (file_ < 0)
    return;
  const auto turn = enter();
  H5Fclose(file_);
  discard();
}

// HDF5 may keep a file open that it could not write, so its space is given back as well.
void Hdf5Writer::discard() noexcept {
  std::error_code ignored;
  std::filesystem::resize_file(path_, 0, ignored);
  std::filesystem::remove(path_, ignored);
}

DatasetExtent Hdf5Writer::write(const std::string& name, ScalarType type, const std::vector<Index>& shape,
                                const void* data) {
  const auto turn = enter();
  ESPALIER_ASSERT(file_ >= 0, "the file is closed");
  const auto extents = to_extents(shape);
  const Dataspace space(extents.empty() ? H5Screate(H5S_SCALAR)
                                        : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr));
  const PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_layout(creation, H5D_CONTIGUOUS);
  H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
  H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY);  // so that its place is known
  H5Pset_obj_track_times(creation, false);
  if (!create_parents(file_, name))
    hdf5::throw_write_error("cannot write a checkpoint file: the groups of dataset " + name, path_);
  Dataset dataset(H5Dcreate2(file_, name.c_str(), stored_type(type), space, H5P_DEFAULT, creation, H5P_DEFAULT));
  if (dataset < 0 || H5Dwrite(dataset, stored_type(type), H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
    hdf5::throw_write_error("cannot write a checkpoint file: dataset " + name, path_);
  const DatasetExtent extent = dataset_extent(dataset);
  if (!dataset.close())
    hdf5::throw_write_error("cannot write a checkpoint file: dataset " + name, path_);
  if (const int descriptor = descriptor_of(file_); descriptor >= 0)
    write_behind_.wrote(descriptor, extent.offset + extent.bytes);
  return extent;
}

std::vector<DatasetExtent> Hdf5Writer::extents() const {
  const auto turn = enter();
  std::vector<DatasetExtent> extents;
  // Over the links: the signature of H5Ovisit differs between versions of HDF5.
  const auto visit = [](hid_t file, const char* name, const H5L_info_t*, void* client) -> herr_t {
    const Object object(H5Oopen(file, name, H5P_DEFAULT));
    if (object >= 0 && H5Iget_type(object) == H5I_DATASET)
      static_cast<std::vector<DatasetExtent>*>(client)->push_back(dataset_extent(object));
    return object < 0 ? -1 : 0;
  };
  if (H5Lvisit(file_, H5_INDEX_NAME, H5_ITER_NATIVE, visit, &extents) < 0)
    hdf5::throw_write_error("cannot read a checkpoint file that is being written", path_);
  return extents;
}

void Hdf5Writer::close() {
  {
    const auto turn = enter();
    if (H5Fclose(std::exchange(file_, -1)) < 0) {  // never twice: HDF5 1.10 crashes in the second
      discard();
      hdf5::throw_write_error("cannot close a checkpoint file", path_);
    }
  }
  sync_file(path_);
}

std::string hdf5_version() {
  const auto turn = enter();  // whichever call is the first opens the library
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace espalier
