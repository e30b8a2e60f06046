// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace espalier {
namespace {

std::string to_hex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

std::uint64_t xxh3_64(const void* data, std::size_t size) { return XXH3_64bits(data, size); }

std::string xxh3_128(const void* data, std::size_t size) { return to_hex(XXH3_128bits(data, size)); }

// Both widths share XXH3's accumulators: one pass serves either digest.
struct Hasher::State {
  std::unique_ptr<XXH3_state_t, FreeState> xxh3{XXH3_createState()};
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->xxh3.get()); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(const void* data, std::size_t size) { XXH3_128bits_update(state_->xxh3.get(), data, size); }
std::uint64_t Hasher::xxh3_64() const { return XXH3_64bits_digest(state_->xxh3.get()); }
std::string Hasher::xxh3_128() const { return to_hex(XXH3_128bits_digest(state_->xxh3.get())); }

std::string metadata_hash(const InputFile& file, std::vector<DatasetExtent> extents) {
  const auto end = static_cast<Index>(file.size());
  std::vector<unsigned char> piece(std::size_t{1} << 20);
  Hasher hasher;
  const auto add = [&](Index begin, Index stop) {
    while (begin < stop) {
      const auto bytes = std::min(piece.size(), static_cast<std::size_t>(stop - begin));
      file.read_at(static_cast<std::size_t>(begin), piece.data(), bytes);
      hasher.update(piece.data(), bytes);
      begin += static_cast<Index>(bytes);
    }
  };
  std::sort(extents.begin(), extents.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  Index next = 0;
  for (const DatasetExtent& extent : extents) {
    add(next, std::min(extent.offset, end));
    next = std::clamp(extent.offset + extent.bytes, next, end);
  }
  add(next, end);
  return hasher.xxh3_128();
}

}  // namespace espalier
