// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include "io/records/metrics.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;
using nlohmann::ordered_json;

TEST(Metrics, a_resumed_run_takes_later_steps_again) {
  const TemporaryDirectory directory;
  const Path path = directory / "metrics.jsonl";
  {
    MetricsWriter writer(path, -1);
    for (int step = 1; step <= 10; ++step)
      writer.append({{"step", step}, {"loss", 1.0 / step}});
  }
  const std::string straight = read_bytes(path);
  for (int last = 0; last <= 10; ++last)
    for (std::size_t cut = 0; cut < 20; ++cut) {
      write_bytes(path, straight.substr(0, straight.size() - cut));  // the last line torn
      MetricsWriter writer(path, last);
      const int kept = last == 10 && cut > 0 ? 9 : last;
      ASSERT_EQ(read_metrics(path).size(), static_cast<std::size_t>(kept));
      for (int step = kept + 1; step <= 10; ++step)
        writer.append({{"step", step}, {"loss", 1.0 / step}});
      EXPECT_EQ(read_bytes(path), straight);
    }
  MetricsWriter fresh(path, -1);
  EXPECT_EQ(read_bytes(path), "");
}

TEST(Metrics, lines_that_are_taken_again_are_kept) {
  const TemporaryDirectory directory;
  const Path path = directory / "metrics.jsonl";
  const std::string first = "{\"step\":1}\n";
  const std::string rest = "{\"step\":2}\n{\"step\":3}\n";
  for (const char* const kept_in : {"metrics.abandoned.jsonl", "metrics.abandoned-2.jsonl"}) {
    write_bytes(path, first + rest + "{\"st");
    const MetricsWriter writer(path, 1);
    EXPECT_EQ(read_bytes(path), first);
    EXPECT_EQ(read_bytes(directory / kept_in), rest + "{\"st");
  }
  write_bytes(path, first + "{\"st");
  const MetricsWriter writer(path, 1);
  EXPECT_FALSE(std::filesystem::exists(directory / "metrics.abandoned-3.jsonl")) << "a torn line alone is nothing";
}

TEST(Metrics, a_file_without_lines_is_refused_before_it_is_read) {
  const TemporaryDirectory directory;
  const Path path = directory / "metrics.jsonl";
  write_bytes(path, "{\"step\":1}\n");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 36);
  EXPECT_THROW(MetricsWriter(path, 1), Error);
  EXPECT_THROW(last_step_in_metrics(path), Error);
}

TEST(Metrics, only_the_end_of_a_long_file_is_read) {
  const TemporaryDirectory directory;
  const Path path = directory / "metrics.jsonl";
  constexpr std::uintmax_t hole = std::uintmax_t{1} << 36;  // more than any memory
  write_bytes(path, "");
  std::filesystem::resize_file(path, hole);
  std::ofstream(path, std::ios::app) << "\n{\"step\":1}\n{\"step\":2}\n{\"st";
  MetricsWriter writer(path, 1);
  writer.append({{"step", 2}});
  EXPECT_EQ(std::filesystem::file_size(path), hole + 1 + 2 * std::string("{\"step\":1}\n").size());
  EXPECT_EQ(last_step_in_metrics(path), 2);
  writer.add_to_last(2, "validation_loss", 1.5);
  EXPECT_EQ(last_step_in_metrics(path), 2);
}

TEST(Metrics, a_field_is_added_to_the_last_line_in_place) {
  const TemporaryDirectory directory;
  const Path path = directory / "m";
  for (const std::size_t room : {0, 5, 40}) {
    MetricsWriter writer(path, -1);
    writer.append({{"step", 1}, {"loss", 0.1}}, room);
    writer.append({{"step", 2}, {"loss", 0.3}}, room);
    const auto size = std::filesystem::file_size(path);
    writer.add_to_last(1, "validation_loss", 7);  // not of the last step
    writer.add_to_last(3, "validation_loss", 7);
    EXPECT_EQ(std::filesystem::file_size(path), size);
    for (const double value : {0.25, 1.0 / 3, std::nan("")}) {
      writer.add_to_last(2, "validation_loss", value);
      const auto lines = read_metrics(path);
      ASSERT_EQ(lines.size(), 2U);
      EXPECT_EQ(lines[0].contains("validation_loss"), false);
      EXPECT_EQ(lines[1].at("loss"), 0.3);
      if (std::isnan(value))
        EXPECT_EQ(lines[1].at("validation_loss"), "nan");
      else
        EXPECT_EQ(lines[1].at("validation_loss"), value);
      EXPECT_TRUE(room < 40 || std::filesystem::file_size(path) == size)
          << "who follows the file sees no part of a line";
    }
    writer.append({{"step", 3}});
    EXPECT_EQ(read_metrics(path).size(), 3U);
    MetricsWriter resumed(path, 2);
    EXPECT_EQ(read_metrics(path).back().at("validation_loss"), "nan");
  }
}

TEST(Metrics, equal_text_means_equal_bits) {
  const TemporaryDirectory directory;
  std::mt19937_64 random(1);
  std::vector<double> values{0.1, 1e-300, 5e-324, 1.7976931348623157e308, 0.1f, -0.0};
  while (values.size() < 2000) {
    const double value = std::bit_cast<double>(random());
    if (std::isfinite(value))
      values.push_back(value);
  }
  MetricsWriter writer(directory / "m", -1);
  for (std::size_t i = 0; i < values.size(); ++i)
    writer.append({{"step", i}, {"x", values[i]}});
  const auto lines = read_metrics(directory / "m");
  ASSERT_EQ(lines.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint64_t>(lines[i]["x"].get<double>()), std::bit_cast<std::uint64_t>(values[i]))
        << values[i];
}

TEST(Metrics, non_finite_numbers_keep_their_names) {
  const TemporaryDirectory directory;
  MetricsWriter writer(directory / "m", -1);
  const double inf = std::numeric_limits<double>::infinity();
  writer.append({{"step", 1}, {"loss", std::nan("")}, {"seconds", {{"forward", inf}, {"bad", -inf}}}});
  EXPECT_EQ(read_bytes(directory / "m"),
            "{\"step\":1,\"loss\":\"nan\",\"seconds\":{\"forward\":\"inf\",\"bad\":\"-inf\"}}\n");
}

TEST(Metrics, a_full_disk_is_an_error_and_leaves_one_torn_line_at_most) {
  const TemporaryDirectory directory;
  const Path path = directory / "m";
  MetricsWriter writer(path, -1);
  {
    const FileSizeLimit limit(64);
    expect_error(ExitCode::write, {"metrics", "errno"}, [&] {
      for (int step = 0; step < 100; ++step)
        writer.append({{"step", step}});
    });
  }
  writer.append({{"step", 100}});
  const auto lines = read_metrics(path);
  ASSERT_EQ(lines.size(), 64u / 11 + 2);
  EXPECT_EQ(lines.back()["step"], 100);
  EXPECT_TRUE(lines[64u / 11].is_discarded()) << "the torn one";
}

TEST(Metrics, a_link_in_its_place_is_not_followed) {
  const TemporaryDirectory directory;
  const Path other = directory / "other.jsonl";
  for (const bool dangling : {true, false}) {
    if (!dangling)
      write_bytes(other, "");
    const Path path = directory / (dangling ? "a.jsonl" : "b.jsonl");
    std::filesystem::create_symlink(other, path);
    expect_error(ExitCode::write, {"another file or directory has this path"}, [&] { MetricsWriter(path, 0); });
    EXPECT_EQ(std::filesystem::exists(other), !dangling);
  }
}

TEST(Metrics, what_is_no_file_is_refused_and_not_waited_for) {
  const TemporaryDirectory directory;
  const Path path = directory / "metrics.jsonl";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_error(ExitCode::write, {"metrics.jsonl", "regular file"}, [&] { MetricsWriter(path, 0); });
}
