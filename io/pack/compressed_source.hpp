// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "io/pack/byte_source.hpp"

namespace espalier {

/// The bytes that a gzip or zstd file holds, all of its members one after the other; any other source as it is. Memory:
/// what the format's window needs, with zstd at most 128 MiB.
/// @param begin the first 4 bytes  @param path in errors: where it is damaged or cut
std::unique_ptr<ByteSource> uncompressed(std::string_view begin, std::unique_ptr<ByteSource> source, const Path& path);

}  // namespace espalier
