// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/event_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>

#include "io/machine.hpp"
#include "io/protobuf_writer.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

constexpr std::string_view name_begin = "events.out.tfevents.";

// Numbers of fields, by tensorflow/core/util/event.proto, framework/summary.proto and framework/tensor.proto.
namespace proto {
namespace event {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace session_log {
constexpr int status = 1, start = 1;
}
namespace summary {
constexpr int value = 1;
}
namespace value {
constexpr int tag = 1, simple_value = 2, tensor = 8, metadata = 9;
}
namespace tensor {
constexpr int type = 1, type_string = 7, shape = 2, string_value = 8;
}
namespace tensor_shape {
constexpr int dim = 2, size = 1;
}
namespace metadata {
constexpr int plugin_data = 1, plugin_name = 1;
}
}  // namespace proto

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ProtobufWriter event_at(std::int64_t step) {
  ProtobufWriter event;
  event.real64(proto::event::wall_time, wall_time()).number(proto::event::step, static_cast<std::uint64_t>(step));
  return event;
}

std::string little_endian_bytes(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i)
    text += static_cast<char>(value >> (8 * i));
  return text;
}

// TensorBoard reads files in the order of their names, and clocks go back at times.
std::int64_t next_time(const Path& directory) {
  auto next = static_cast<std::int64_t>(wall_time());
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    std::int64_t time = 0;
    if (name.starts_with(name_begin) &&
        std::from_chars(name.data() + name_begin.size(), name.data() + name.size(), time).ec == std::errc())
      next = std::max(next, time + 1);
  }
  return next;
}

// Four spaces before each line are code in Markdown, which TensorBoard would make of it otherwise.
std::string verbatim(std::string_view text) {
  std::string shown = "    ";
  for (const char c : replace_invalid_utf8(text)) {
    shown += c;
    if (c == '\n')
      shown += "    ";
  }
  return shown;
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> entries{};
    for (std::uint32_t i = 0; i < entries.size(); ++i) {
      entries[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        entries[i] = entries[i] >> 1 ^ (entries[i] & 1 ? 0x82F63B78U : 0);
    }
    return entries;
  }();
  std::uint32_t crc = ~0U;
  for (const char c : bytes)
    crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return std::rotr(~crc, 15) + 0xA282EAD8U;
}

EventFile::EventFile(const Path& directory, std::int64_t first_step) {
  make_directories(directory);
  path_ = directory / fmt::format("{}{:010d}.{}", name_begin, next_time(directory), host_name());
  file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file_.is_open())
    throw_write_error("cannot make a file of events", path_, errno);
  append(event_at(0).bytes(proto::event::file_version, "brain.Event:2").text());
  append(event_at(first_step)
             .message(proto::event::session_log,
                      ProtobufWriter().number(proto::session_log::status, proto::session_log::start))
             .text());
}

void EventFile::scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  ProtobufWriter summary;
  for (const auto& [tag, number] : values)
    summary.message(
        proto::summary::value,
        ProtobufWriter().bytes(proto::value::tag, tag).real32(proto::value::simple_value, static_cast<float>(number)));
  append(event_at(step).message(proto::event::summary, summary).text());
}

void EventFile::text(std::int64_t step, const std::string& tag, std::string_view text) {
  const ProtobufWriter plugin = ProtobufWriter().bytes(proto::metadata::plugin_name, "text");
  const ProtobufWriter shape =
      ProtobufWriter().message(proto::tensor_shape::dim, ProtobufWriter().number(proto::tensor_shape::size, 1));
  const ProtobufWriter content = ProtobufWriter()
                                     .number(proto::tensor::type, proto::tensor::type_string)
                                     .message(proto::tensor::shape, shape)
                                     .bytes(proto::tensor::string_value, verbatim(text));
  const ProtobufWriter shown =
      ProtobufWriter()
          .bytes(proto::value::tag, tag)
          .message(proto::value::tensor, content)
          .message(proto::value::metadata, ProtobufWriter().message(proto::metadata::plugin_data, plugin));
  append(event_at(step).message(proto::event::summary, ProtobufWriter().message(proto::summary::value, shown)).text());
}

void EventFile::append(std::string_view event) {
  const std::string length = little_endian_bytes(event.size(), 8);
  std::string record = length + little_endian_bytes(masked_crc32c(length), 4);
  record += event;
  record += little_endian_bytes(masked_crc32c(event), 4);
  ssize_t written = 0;
  do
    written = ::write(file_.get(), record.data(), record.size());
  while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(record.size()))
    throw_write_error("cannot write the file of events", path_, written < 0 ? errno : ENOSPC);
}

}  // namespace espalier
