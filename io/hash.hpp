// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/checkpoint/hdf5_file.hpp"

namespace espalier {

/// XXH3: detects accidents, not attacks; several GB/s on one core.
std::uint64_t xxh3_64(const void* data, std::size_t size);

/// 32 lower-case hexadecimal digits.
std::string xxh3_128(const void* data, std::size_t size);

/// The same hashes of data that arrives in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  void update(const void* data, std::size_t size);
  std::uint64_t xxh3_64() const;
  std::string xxh3_128() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-128 of the bytes of a file that lie in none of the extents, in file order. With the datasets' own
/// hashes, every byte of a checkpoint has a checksum.
std::string metadata_hash(const InputFile& file, std::vector<DatasetExtent> extents);

}  // namespace espalier
