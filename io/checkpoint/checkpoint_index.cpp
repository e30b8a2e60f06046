// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/checkpoint_index.hpp"

#include <limits>

#include "io/checkpoint/hdf5_support.hpp"
#include "io/hash.hpp"
#include "io/pack/json_text.hpp"

namespace espalier {
namespace {

using hdf5::Dataset, hdf5::Dataspace, hdf5::Datatype, hdf5::File, hdf5::PropertyList, hdf5::enter, hdf5::file_access,
    hdf5::create_parents, hdf5::file_creation, hdf5::stored_type, hdf5::to_extents;

// HDF5 takes "%b" in the name of a source for a pattern.
std::string source_name(const std::string& name) {
  std::string escaped;
  for (const char c : name)
    escaped += c == '%' ? "%%" : std::string(1, c);
  return escaped;
}

// A virtual dataset has one dimension at least.
std::vector<hsize_t> extents_of(const std::vector<Index>& shape) {
  return shape.empty() ? std::vector<hsize_t>{1} : to_extents(shape);
}

hid_t space_of(const std::vector<hsize_t>& extents) {
  return H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
}

// A source that is missing must not pass for zeros.
bool fill_with_nan(const PropertyList& creation, ScalarType type) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::uint16_t bits = type == ScalarType::bf16 ? 0x7fc0 : 0x7e00;
  if (stored_type(type) == H5T_STD_U16LE)
    return H5Pset_fill_value(creation, H5T_NATIVE_UINT16, &bits) >= 0;
  return H5Pset_fill_value(creation, H5T_NATIVE_DOUBLE, &nan) >= 0;
}

bool map_block(const PropertyList& creation, const Dataspace& tensor, const StoredBlock& block) {
  const Dataspace source(block.count.empty() ? H5Screate(H5S_SCALAR) : space_of(to_extents(block.count)));
  const std::vector<hsize_t> start = block.start.empty() ? std::vector<hsize_t>{0} : to_extents(block.start);
  const std::vector<hsize_t> count = extents_of(block.count);
  return H5Sselect_hyperslab(tensor, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) >= 0 &&
         H5Pset_virtual(creation, tensor, source_name(block.file).c_str(), source_name(block.dataset).c_str(),
                        source) >= 0;
}

// At once: what HDF5 closes on the way out would clear its reason.
void require_written(bool good, const Path& path) {
  if (!good)
    hdf5::throw_write_error("cannot write the index of a checkpoint", path);
}

void write_tensor(const File& file, const Path& path, std::span<const StoredBlock* const> blocks) {
  const StoredBlock& any = *blocks.front();
  const PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation, false);
  const Dataspace tensor(space_of(extents_of(any.global_shape)));
  bool good = fill_with_nan(creation, any.type);
  for (const StoredBlock* const block : blocks)
    good = good && map_block(creation, tensor, *block);
  H5Sselect_all(tensor);
  require_written(create_parents(file, any.name), path);
  Dataset dataset(
      H5Dcreate2(file, any.name.c_str(), stored_type(any.type), tensor, H5P_DEFAULT, creation, H5P_DEFAULT));
  require_written(good && dataset >= 0 && dataset.close(), path);
}

// As a dataset: an attribute is limited to 64 KiB.
void write_text(const File& file, const Path& path, const char* name, const std::string& text) {
  const Dataspace space(H5Screate(H5S_SCALAR));
  const Datatype type(H5Tcopy(H5T_C_S1));
  const PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_obj_track_times(creation, false);
  require_written(H5Tset_size(type, text.size()) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0, path);
  Dataset dataset(H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  require_written(
      dataset >= 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) >= 0 && dataset.close(),
      path);
}

}  // namespace

StoredFile write_index(const Path& partial, const CheckpointInfo& info, std::span<const StoredBlock> blocks) {
  const Path path = partial / index_name;
  std::map<std::string, std::vector<const StoredBlock*>> tensors;
  for (const StoredBlock& block : blocks)
    tensors[block.name].push_back(&block);
  {
    const auto turn = enter();
    const PropertyList access(file_access());
    const PropertyList creation(file_creation());
    File file(H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation, access));
    require_written(file >= 0, path);
    write_text(file, path, "state", json_text(info.state, 1));
    for (const auto& [name, parts] : tensors)
      write_tensor(file, path, parts);
    require_written(file.close(), path);
  }
  sync_file(path);
  const std::string bytes = read_file(path, ExitCode::write);
  return {index_name, static_cast<Index>(bytes.size()), xxh3_128(bytes.data(), bytes.size())};
}

}  // namespace espalier
