// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/checkpoint_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "io/checkpoint/block_copy.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/hash.hpp"
#include "io/input_limits.hpp"

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little, "a checkpoint holds numbers of little-endian machines");

constexpr Index read_piece_bytes = Index{4} << 20;  // is still in the cache when it is hashed
constexpr const char* use_another = "use another checkpoint; this one is damaged or was tampered with";

[[noreturn]] void refuse_checkpoint(const Path& path, std::string what, std::string got, std::string wanted,
                                    std::string todo = use_another) {
  throw Error(ExitCode::checkpoint,
              {std::move(what), path.string(), std::move(got), std::move(wanted), std::move(todo)});
}

// A plain file of the directory itself; a symbolic link could name any file.
void check_regular(const Path& path, const std::string& todo = use_another) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  if (status.type() == std::filesystem::file_type::none)
    refuse_checkpoint(path, "a file of a checkpoint cannot be opened", error.message(), "a directory that may be read",
                      "check the permissions of the directory");
  if (!std::filesystem::exists(status))
    refuse_checkpoint(path, "a file of a checkpoint is missing", "no such file", "the file that the manifest names",
                      todo);
  if (!std::filesystem::is_regular_file(status))
    refuse_checkpoint(path, "a file of a checkpoint is not a regular file", "a link, directory or device",
                      "a plain file", todo);
}

void check_size(const Path& path, Index found, Index wanted) {
  if (found != wanted)
    refuse_checkpoint(
        path, found < wanted ? "a file of a checkpoint is truncated" : "a file of a checkpoint is longer than it was",
        fmt::format("{} bytes", found), fmt::format("{} bytes", wanted));
}

void check_inside(const Path& path, const TensorInfo& info, const WantedBox& box) {
  const std::size_t rank = info.global_shape.size();
  bool inside = box.start.size() == rank && box.count.size() == rank;
  for (std::size_t d = 0; inside && d < rank; ++d)
    inside = box.start[d] >= 0 && box.count[d] >= 1 && box.start[d] + box.count[d] <= info.global_shape[d];
  if (!inside)
    refuse_checkpoint(path, "a tensor of a checkpoint has another shape",
                      fmt::format("{} of shape ({})", info.name, fmt::join(info.global_shape, ", ")),
                      fmt::format("a block of ({}) from ({})", fmt::join(box.count, ", "), fmt::join(box.start, ", ")),
                      "use the checkpoint of a model with the same [model] section");
}

bool is_whole(const StoredBlock& block, const std::vector<Index>& start, const std::vector<Index>& count) {
  return block.start == start && block.count == count;
}

}  // namespace

struct CheckpointReader::Data {
  Path path;
  Manifest manifest;
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, StoredPart> parts;  // of those tensors, that an older version stored as parts of another
  std::map<std::string, std::vector<std::size_t>> blocks_of;  // tensor -> indices into manifest.blocks
  std::map<std::string, std::vector<std::size_t>> blocks_in;  // file -> the same
  std::map<std::string, const StoredFile*> files;             // of the manifest
  std::set<std::string> trusted;                              // files whose metadata has been hashed
  std::string open_name;                                      // one file is held open
  std::optional<InputFile> open_file;
  std::size_t cached_block = ~std::size_t{0};  // the last block that was read for a part of it
  std::vector<unsigned char> cache;

  std::vector<TensorInfo> all_tensors() const;
  // Tensors of an older version that are several today.
  void take_apart();
  // The same box of what is stored.
  WantedBox stored_box(WantedBox box) const;

  const InputFile& file(const std::string& name);
  void read_block(const StoredBlock& block, void* destination);
  void verify_block(const StoredBlock& block);

  // Reads a block and holds it against its checksum. `place(done)`: where the piece that begins there goes; `see(piece,
  // bytes)` follows.
  template <class Place, class See>
  void read_pieces(const StoredBlock& block, const Place& place, const See& see);
};

std::vector<TensorInfo> CheckpointReader::Data::all_tensors() const {
  std::vector<TensorInfo> list;
  for (const auto& [name, tensor] : tensors)
    list.push_back(tensor);
  return list;
}

void CheckpointReader::Data::take_apart() {
  for (const TensorInfo& stored : all_tensors()) {
    const auto found = parts_of_stored(stored.name, manifest.version);
    if (found.empty() || stored.global_shape.size() < 2 ||
        stored.global_shape.front() != static_cast<Index>(found.size()))
      continue;
    tensors.erase(stored.name);
    for (const auto& [name, part] : found) {
      if (tensors.contains(name))
        refuse_manifest(path / manifest_name, "a checkpoint has a tensor under an old and a new name", name,
                        "one of " + stored.name + " and " + name);
      tensors[name] = {name, stored.type, {stored.global_shape.begin() + 1, stored.global_shape.end()}};
      parts[name] = part;
    }
  }
}

WantedBox CheckpointReader::Data::stored_box(WantedBox box) const {
  const auto found = parts.find(box.name);
  if (found == parts.end())
    return box;
  box.name = found->second.tensor;
  box.start.insert(box.start.begin(), found->second.part);
  box.count.insert(box.count.begin(), 1);
  return box;
}

const InputFile& CheckpointReader::Data::file(const std::string& name) {
  if (open_file && open_name == name)
    return *open_file;
  const StoredFile* const stored = files.at(name);
  open_file.reset();  // before the next one opens
  InputFile input(path / name, ExitCode::checkpoint);
  check_size(path / name, static_cast<Index>(input.size()), stored->bytes);
  if (trusted.count(name) == 0) {
    std::vector<DatasetExtent> extents;
    for (const std::size_t i : blocks_in[name])
      extents.push_back(manifest.blocks[i].extent);
    const std::string found = metadata_hash(input, extents);
    if (found != stored->xxh3_128)
      refuse_checkpoint(path / name, "a checkpoint file is damaged outside its data", "XXH3-128 " + found,
                        stored->xxh3_128);
    trusted.insert(name);
  }
  open_name = name;
  return open_file.emplace(std::move(input));
}

template <class Place, class See>
void CheckpointReader::Data::read_pieces(const StoredBlock& block, const Place& place, const See& see) {
  const InputFile& input = file(block.file);
  Hasher hasher;
  for (Index done = 0; done < block.extent.bytes; done += read_piece_bytes) {
    const auto bytes = static_cast<std::size_t>(std::min(read_piece_bytes, block.extent.bytes - done));
    unsigned char* const piece = place(done);
    input.read_at(static_cast<std::size_t>(block.extent.offset + done), piece, bytes);
    hasher.update(piece, bytes);
    see(piece, bytes);
  }
  const std::string found = hasher.xxh3_128();
  if (found != block.xxh3_128)
    refuse_checkpoint((path / block.file).string() + ": dataset " + block.dataset,
                      "the data of a checkpoint are damaged", "XXH3-128 " + found, block.xxh3_128);
}

void CheckpointReader::Data::read_block(const StoredBlock& block, void* destination) {
  read_pieces(
      block, [&](Index done) { return static_cast<unsigned char*>(destination) + done; },
      [](const unsigned char*, std::size_t) {});
}

// Whatever size a manifest claims, it takes no more memory than a piece.
void CheckpointReader::Data::verify_block(const StoredBlock& block) {
  cached_block = ~std::size_t{0};
  cache.resize(static_cast<std::size_t>(std::min(read_piece_bytes, block.extent.bytes)));
  const bool squares = block.name.starts_with(tensor_name(exp_avg_sq_group, ""));
  const double least = squares ? 0 : -std::numeric_limits<double>::max();
  bool finite = true;
  read_pieces(
      block, [&](Index) { return cache.data(); },
      [&](const unsigned char* piece, std::size_t bytes) {
        finite = finite && is_finite(block.type, piece, static_cast<Index>(bytes / size_of(block.type)), least);
      });
  if (!finite)
    refuse_checkpoint(path,
                      squares ? "a checkpoint holds second moments that are negative or not finite"
                              : "a checkpoint holds numbers that are not finite",
                      (squares ? "nan, inf or a number below 0 in " : "nan or inf in ") + block.name,
                      squares ? "finite numbers of at least 0" : "finite numbers",
                      "use an older checkpoint; the file is not damaged: these numbers were written");
}

CheckpointReader::CheckpointReader(const Path& directory) : data_(std::make_unique<Data>()) {
  data_->path = directory;
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error))
    refuse_checkpoint(directory, "there is no such checkpoint", "no directory", "a directory like step-00000100",
                      "check the path; `espalier checkpoint inspect RUN` lists a run's checkpoints");
  const Path manifest_path = directory / manifest_name;
  check_regular(manifest_path);
  data_->manifest =
      parse_manifest(read_file(manifest_path, ExitCode::checkpoint, LargestFile::manifest), manifest_path);
  for (const StoredFile& file : data_->manifest.files) {
    data_->files[file.name] = &file;
    const Path path = directory / file.name;
    check_regular(path);
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    if (error)
      refuse_checkpoint(path, "a file of a checkpoint cannot be opened", error.message(), "a file that stays");
    check_size(path, static_cast<Index>(size), file.bytes);
  }
  for (std::size_t i = 0; i < data_->manifest.blocks.size(); ++i) {
    const StoredBlock& block = data_->manifest.blocks[i];
    data_->tensors[block.name] = {block.name, block.type, block.global_shape};
    data_->blocks_of[block.name].push_back(i);
    data_->blocks_in[block.file].push_back(i);
  }
  data_->take_apart();
}

CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;
CheckpointReader::~CheckpointReader() = default;

const Path& CheckpointReader::path() const { return data_->path; }
const CheckpointInfo& CheckpointReader::info() const { return data_->manifest.info; }
const std::vector<StoredFile>& CheckpointReader::files() const { return data_->manifest.files; }

std::vector<TensorInfo> CheckpointReader::tensors() const { return data_->all_tensors(); }

bool CheckpointReader::contains(const std::string& name) const { return data_->tensors.count(name) > 0; }

const TensorInfo& CheckpointReader::tensor(const std::string& name) const {
  const auto found = data_->tensors.find(name);
  if (found == data_->tensors.end())
    refuse_checkpoint(data_->path, "a checkpoint lacks a tensor",
                      fmt::format("{} other tensors", data_->tensors.size()), name,
                      "is it a checkpoint of this model? `espalier checkpoint inspect` lists its tensors");
  return found->second;
}

void CheckpointReader::read(std::span<const WantedBox> boxes) const {
  struct Use {  // a stored block that shares something with a wanted box
    std::size_t block;
    const WantedBox* box;
  };
  std::vector<WantedBox> stored;
  for (const WantedBox& box : boxes) {
    check_inside(data_->path, tensor(box.name), box);
    stored.push_back(data_->stored_box(box));
  }
  std::vector<Use> uses;
  for (const WantedBox& box : stored) {
    for (const std::size_t i : data_->blocks_of.at(box.name))
      if (overlaps(data_->manifest.blocks[i], box))
        uses.push_back({i, &box});
  }
  // The manifest lists blocks file by file, as their writers wrote them.
  std::stable_sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.block < b.block; });
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const auto& [index, box] = uses[i];
    const StoredBlock& block = data_->manifest.blocks[index];
    const bool is_only_use =
        (i == 0 || uses[i - 1].block != index) && (i + 1 == uses.size() || uses[i + 1].block != index);
    if (is_only_use && is_whole(block, box->start, box->count) && block.type == box->type) {
      data_->read_block(block, box->destination);
      continue;
    }
    if (data_->cached_block != index) {
      data_->cached_block = ~std::size_t{0};
      data_->cache.resize(static_cast<std::size_t>(block.extent.bytes));
      data_->read_block(block, data_->cache.data());
      data_->cached_block = index;
    }
    copy_overlap({block.start, block.count}, block.type, data_->cache.data(), {box->start, box->count}, box->type,
                 box->destination);
  }
}

void CheckpointReader::read(const std::string& name, const std::vector<Index>& start, const std::vector<Index>& count,
                            ScalarType type, void* destination) const {
  const WantedBox box{name, start, count, type, destination};
  read({&box, 1});
}

void CheckpointReader::read(const std::string& name, const std::vector<Index>& global_shape, ScalarType type,
                            void* destination) const {
  const TensorInfo& info = tensor(name);
  if (info.global_shape != global_shape)
    refuse_checkpoint(data_->path, "a tensor of a checkpoint has another shape",
                      fmt::format("{} of shape ({})", name, fmt::join(info.global_shape, ", ")),
                      fmt::format("({})", fmt::join(global_shape, ", ")),
                      "use the checkpoint of a model with the same [model] section");
  read(name, std::vector<Index>(global_shape.size(), 0), global_shape, type, destination);
}

Index CheckpointReader::verify() const {
  Index bytes = 0;
  for (const StoredFile& file : data_->manifest.files) {
    data_->file(file.name);  // a file without a block has metadata too
    bytes += file.bytes;
  }
  for (const StoredBlock& block : data_->manifest.blocks)
    data_->verify_block(block);
  if (const auto& index = data_->manifest.index) {
    const Path path = data_->path / index->name;
    const std::string todo =
        "Espalier itself never reads it, and resumes from here; do not trust what other tools show";
    check_regular(path, todo);
    const InputFile file(path, ExitCode::checkpoint);
    const auto size = static_cast<Index>(file.size());
    if (size != index->bytes)
      refuse_checkpoint(path, "the index of a checkpoint is damaged", fmt::format("{} bytes", size),
                        fmt::format("{} bytes", index->bytes), todo);
    const std::string found = metadata_hash(file, {});
    if (found != index->xxh3_128)
      refuse_checkpoint(path, "the index of a checkpoint is damaged", "XXH3-128 " + found, index->xxh3_128, todo);
    bytes += index->bytes;
  }
  return bytes;
}

}  // namespace espalier
