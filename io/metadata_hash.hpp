// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/hdf5_file.hpp"

namespace espalier {

/// XXH3-128 of the bytes of a file that lie in none of the places, in file order. With the datasets' own
/// hashes, every byte of a checkpoint has a checksum.
std::string metadata_hash(const InputFile& file, std::vector<DatasetPlace> places);

}  // namespace espalier
