// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.hpp"

namespace espalier {

/// A file of events for TensorBoard: records of TFRecord, each an Event of protobuf. Each is written by one write(2),
/// so a killed process loses nothing that was written.
class EventFile {
 public:
  /// A new file, events.out.tfevents.TIME.HOST, behind those that the directory has by the order of names. It says that
  /// it begins with `first_step`: of steps from there on, TensorBoard forgets what earlier files hold.
  /// @throws Error (write), also by the other functions.
  EventFile(const Path& directory, std::int64_t first_step);

  void scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);

  /// Shown as it is, in lines.
  void text(std::int64_t step, const std::string& tag, std::string_view text);

  const Path& path() const { return path_; }

 private:
  void append(std::string_view event);

  Path path_;
  FileDescriptor file_;
};

/// CRC-32C, rotated and offset as TFRecord wants it.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace espalier
