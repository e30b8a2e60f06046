// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Files of events, read field by field. tests/app/test_tensorboard.sh reads them with TensorBoard.
#include <cmath>
#include <limits>
#include <optional>

#include "io/records/event_file.hpp"
#include "io/text/protobuf_reader.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// The events of a file; every checksum is looked at.
std::vector<std::string> events_in(const Path& path) {
  const std::string file = read_bytes(path);
  std::vector<std::string> events;
  for (std::string_view rest = file; !rest.empty();) {
    const std::size_t size = little_endian(rest.substr(0, 8));
    EXPECT_EQ(little_endian(rest.substr(8, 4)), masked_crc32c(rest.substr(0, 8)));
    const std::string_view event = rest.substr(12, size);
    EXPECT_EQ(little_endian(rest.substr(12 + size, 4)), masked_crc32c(event));
    events.emplace_back(event);
    rest.remove_prefix(16 + size);
  }
  return events;
}

// Fields by their path of numbers, "5.1.2 = ...": numbers as text, bytes as they are.
void list_fields(std::string_view message, const std::string& path, const std::vector<std::string>& messages,
                 std::vector<std::string>& fields) {
  for (ProtobufReader reader(message); reader.next();) {
    const std::string name = path + std::to_string(reader.field);
    if (std::ranges::find(messages, name) != messages.end())
      list_fields(reader.bytes, name + ".", messages, fields);
    else if (reader.wire_type == 0)
      fields.push_back(name + " = " + std::to_string(static_cast<std::int64_t>(reader.value)));
    else if (reader.wire_type == 5)
      fields.push_back(name + " = " +
                       std::to_string(std::bit_cast<float>(static_cast<std::uint32_t>(little_endian(reader.bytes)))));
    else if (reader.wire_type == 2)
      fields.push_back(name + " = " + std::string(reader.bytes));
  }
}

// Without the wall time.
std::vector<std::string> fields_of(std::string_view event) {
  std::vector<std::string> fields;
  list_fields(event, "", {"5", "5.1", "5.1.8", "5.1.8.2", "5.1.8.2.2", "5.1.9", "5.1.9.1", "7"}, fields);
  return fields;
}

using Fields = std::vector<std::string>;

}  // namespace

TEST(EventFile, masks_its_checksums) {
  EXPECT_EQ(masked_crc32c("123456789"), 0xC78AB0E5U);  // of the CRC 0xE3069283
  EXPECT_EQ(masked_crc32c(std::string(32, '\0')), 0x0FD7FFFAU);
}

TEST(EventFile, holds_numbers_and_texts) {
  const TemporaryDirectory directory;
  EventFile file(directory / "events", 8);
  EXPECT_TRUE(file.path().filename().string().starts_with("events.out.tfevents."));
  file.scalars(8, {{"training/loss", 2.5}, {"training/mfu", std::numeric_limits<double>::infinity()}});
  file.text(300, "samples/1", "a\nb");
  const std::vector<std::string> events = events_in(file.path());  // while it is open: nothing is held back
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(fields_of(events[0]), (Fields{"2 = 0", "3 = brain.Event:2"}));
  EXPECT_EQ(fields_of(events[1]), (Fields{"2 = 8", "7.1 = 1"}));
  EXPECT_EQ(fields_of(events[2]),
            (Fields{"2 = 8", "5.1.1 = training/loss", "5.1.2 = 2.500000", "5.1.1 = training/mfu", "5.1.2 = inf"}));
  EXPECT_EQ(fields_of(events[3]), (Fields{"2 = 300", "5.1.1 = samples/1", "5.1.8.1 = 7", "5.1.8.2.2.1 = 1",
                                          "5.1.8.8 =     a\n    b", "5.1.9.1.1 = text"}));
}

TEST(EventFile, a_later_one_is_behind_in_the_order_of_names) {
  const TemporaryDirectory directory;
  write_bytes(directory / "events.out.tfevents.4000000000.host", "of a clock that was wrong");
  std::string before = "events.out.tfevents.4000000000.host";
  for (int i = 0; i < 3; ++i) {
    const std::string name = EventFile(directory.path(), 1).path().filename();
    EXPECT_LT(before, name);
    before = name;
  }
}

TEST(EventFile, an_error_names_the_file) {
  const TemporaryDirectory directory;
  write_bytes(directory / "file", "");
  expect_error(ExitCode::write, {"file"}, [&] { EventFile(directory / "file", 1); });
  EventFile file(directory.path(), 1);
  const FileSizeLimit full(100);
  expect_error(ExitCode::write, {"cannot write the file of events", file.path().string()},
               [&] { file.text(1, "tag", std::string(200, 'x')); });
}
