// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

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

}  // namespace espalier
