// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/progress_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "io/rank_file_name.hpp"

namespace espalier {
namespace {

// Marks our files, and those that are whole. Written once, before the file gets its name.
struct Header {
  char magic[8] = {'E', 'S', 'P', 'A', 'L', 'P', 'O', 'S'};
  std::uint32_t version = 1;
  std::int32_t rank = 0;
  std::uint64_t payload_bytes = 0;
  char reserved[40] = {};  // the payload begins at a cache line
};
static_assert(sizeof(Header) == 64);

constexpr std::size_t largest_payload = 64 * 1024;  // a file of absurd size is not one of ours

constexpr const char* ending = ".position";

std::optional<StoredProgress> read_progress(const Path& path) {
  const std::optional<Index> rank = rank_in(path.filename().string(), ending);
  std::error_code error;
  if (!rank || !std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error)))
    return std::nullopt;
  try {
    if (std::filesystem::file_size(path, error) > sizeof(Header) + largest_payload || error)
      return std::nullopt;
    const std::string text = read_file(path, ExitCode::data);
    Header header;
    const Header wanted;
    if (text.size() < sizeof(header))
      return std::nullopt;
    std::memcpy(&header, text.data(), sizeof(header));
    if (std::memcmp(header.magic, wanted.magic, sizeof(wanted.magic)) != 0 || header.version != wanted.version ||
        header.rank != *rank || header.payload_bytes != text.size() - sizeof(header))
      return std::nullopt;
    return StoredProgress{header.rank, text.substr(sizeof(header))};
  } catch (const Error&) {  // gone or unreadable
    return std::nullopt;
  }
}

}  // namespace

ProgressFile::ProgressFile(const Path& directory, int rank, std::size_t size)
    : path_(directory / rank_file_name(rank, ending)), size_(size) {
  ESPALIER_ASSERT(size > 0 && size <= largest_payload, "espalier::ProgressFile: a size out of bounds");
  Header header;
  header.rank = rank;
  header.payload_bytes = size;
  std::string content(reinterpret_cast<const char*>(&header), sizeof(header));
  content.resize(sizeof(header) + size);
  write_file_atomically(path_, content);  // its blocks exist: a full disk fails here, not at a store to memory
  const FileDescriptor file(::open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!file.is_open())
    throw_write_error("cannot open a progress file", path_, errno);
  void* const address = ::mmap(nullptr, content.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED)
    throw_write_error("cannot map a progress file", path_, errno);
  mapping_ = address;
  data_ = static_cast<char*>(address) + sizeof(header);
}

ProgressFile::~ProgressFile() { ::munmap(mapping_, sizeof(Header) + size_); }

void ProgressFile::remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

std::vector<StoredProgress> read_progress_files(const Path& directory) {
  std::vector<StoredProgress> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (auto progress = read_progress(entry.path()))
      found.push_back(std::move(*progress));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return found;
}

void remove_progress_files(const Path& directory) {
  std::error_code ignored;
  for (const StoredProgress& progress : read_progress_files(directory))
    std::filesystem::remove(directory / rank_file_name(progress.rank, ending), ignored);
}

}  // namespace espalier
