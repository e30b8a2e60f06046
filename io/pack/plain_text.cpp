// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/plain_text.hpp"

#include <fmt/format.h>

#include <optional>

#include "core/error.hpp"
#include "io/pack/file_kind.hpp"
#include "io/pack/input_files.hpp"

namespace espalier {

void require_plain_text(const Path& path, std::string_view bytes, Index offset) {
  const std::optional<FileKind> kind = offset == 0 ? marked_kind(bytes) : std::nullopt;
  const std::size_t zero = bytes.find('\0');
  if (!kind && zero == std::string::npos)
    return;
  throw Error(ExitCode::data,
              {.what = "a file to pack is not text",
               .where = path.string(),
               .got = kind ? kind->name : fmt::format("a zero byte at offset {}", offset + static_cast<Index>(zero)),
               .wanted = "plain text",
               .todo = fmt::format("{}leave it out: --exclude '{}'; or take it: --allow-binary",
                                   kind ? kind->todo + "; or " : "", as_pattern(path.filename().string()))});
}

}  // namespace espalier
