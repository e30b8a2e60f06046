// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/app/mutations.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "io/hash.hpp"

namespace espalier::test {
namespace {

using Json = nlohmann::ordered_json;

std::size_t below(std::size_t limit, Random& random) { return limit == 0 ? 0 : random() % limit; }

template <class List>
const auto& any_of(const List& list, Random& random) {
  return list[below(std::size(list), random)];
}

std::string repeated(const std::string& part, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i)
    text += part;
  return text;
}

std::string read(const Path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const Path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

const std::vector<std::string> garbage = {std::string(1, '\0'),
                                          "\x1b[2J\x1b]0;title\a",
                                          "\xff\xfe",
                                          "\xc3",
                                          "\xed\xa0\x80",
                                          "\r\n",
                                          "\"",
                                          "\\",
                                          "}",
                                          "]",
                                          "{",
                                          "[",
                                          ",",
                                          "#",
                                          "'''",
                                          "\"\"\"",
                                          "1e999",
                                          std::string(100000, '9'),
                                          std::string(300000, ' '),
                                          "NaN",
                                          "-Infinity"};

// ---- any file ----

std::string change_bytes(std::string& text, Random& random) {
  const std::size_t at = below(text.size(), random);
  const std::size_t size = std::min(text.size() - at, 1 + below(random() % 4 == 0 ? 4096 : 16, random));
  switch (random() % 8) {
    case 0:
    case 1:
      if (!text.empty())
        text[at] = static_cast<char>(text[at] ^ (1 << below(8, random)));
      return fmt::format("a bit of byte {} flipped", at);
    case 2: text.resize(at); return fmt::format("cut to {} bytes", at);
    case 3: text.erase(at, size); return fmt::format("{} bytes from {} removed", size, at);
    case 4: text.insert(at, text.substr(at, size)); return fmt::format("{} bytes from {} twice", size, at);
    case 5:
      for (std::size_t i = at; i < at + size; ++i)
        text[i] = static_cast<char>(random());
      return fmt::format("{} bytes from {} at random", size, at);
    case 6:
      std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), size, '\0');
      return fmt::format("{} zeros from {}", size, at);
    default: {
      const std::string& part = any_of(garbage, random);
      text.insert(at, part);
      return fmt::format("{} bytes of garbage at {}", part.size(), at);
    }
  }
}

// Another encoding, or another text altogether.
std::string change_whole(std::string& text, Random& random) {
  switch (random() % 9) {
    case 0: text.clear(); return "emptied";
    case 1: text.insert(0, "\xef\xbb\xbf"); return "a byte-order mark";
    case 2: {
      std::string wide = "\xff\xfe";
      for (const char c : text)
        wide += {c, '\0'};
      text = wide;
      return "as UTF-16";
    }
    case 3: text = repeated("[", 200000); return "brackets, 200000 deep";
    case 4: text = repeated("{\"a\":", 200000); return "objects, 200000 deep";
    case 5: text = "x = " + repeated("[", 200000); return "a list, 200000 deep";
    case 6: text = repeated("a.", 100000) + "a = 1\n"; return "a key of 100000 parts";
    case 7: text = "[" + repeated("a.", 100000) + "a]\n"; return "a section of 100000 parts";
    default: text = repeated("null\n", 20000); return "20000 nulls";
  }
}

std::string change_file(const Path& file, const Path& others, Random& random) {
  std::vector<Path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(others))
    if (entry.is_regular_file())
      paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::filesystem::remove(file);
  switch (random() % 10) {
    case 0: return "removed";
    case 1: std::filesystem::create_directory(file); return "a directory";
    case 2: ::mkfifo(file.c_str(), 0644); return "a FIFO";
    case 3: std::filesystem::create_symlink(file.filename(), file); return "a link to itself";
    case 4: std::filesystem::create_symlink("/dev/zero", file); return "a link to /dev/zero";
    case 5:
      write(file, "{");
      ::truncate(file.c_str(), off_t{1} << 36);
      return "64 GiB of nothing";
    default: {
      const Path& other = any_of(paths, random);
      std::filesystem::copy_file(other, file);
      return fmt::format("{} in its place", other.lexically_relative(others).string());
    }
  }
}

// ---- JSON ----

Json any_value(Random& random) {
  switch (random() % 26) {
    case 0: return nullptr;
    case 1: return true;
    case 2: return -1;
    case 3: return -5;
    case 4: return 0;
    case 5: return 1;
    case 6: return 3;
    case 7: return 7;
    case 8: return 1LL << 31;
    case 9: return 1LL << 40;
    case 10: return 1LL << 62;
    case 11: return std::numeric_limits<std::int64_t>::min();
    case 12: return std::numeric_limits<std::uint64_t>::max();
    case 13: return 1e308;
    case 14: return -0.5;
    case 15: return 1e-320;
    case 16: return "";
    case 17: return "../../../etc/passwd";
    case 18: return "\x1b[31mred\x1b[0m\r\n";
    case 19: return std::string(100000, 'x');
    case 20: return "nan";
    case 21: return Json::array();
    case 22: return Json::object();
    case 23: return Json::parse(repeated("[", 100) + repeated("]", 100));
    case 24: return Json(std::vector<int>(1000, 1));
    default: return static_cast<std::int64_t>(random() % 1000);
  }
}

// Something inside of `json`, with its way there.
Json* any_node(Json& json, std::string& way, Random& random) {
  Json* node = &json;
  while (node->is_structured() && !node->empty() && (node == &json || random() % 5 != 0)) {
    auto item = node->begin();
    std::advance(item, static_cast<std::ptrdiff_t>(below(node->size(), random)));
    way += node->is_object() ? "." + item.key() : fmt::format("[{}]", item - node->begin());
    node = &*item;
  }
  return node;
}

std::string change_json(Json& json, std::string& way, Random& random) {
  Json* const node = any_node(json, way, random);
  if (node->is_array() && node->size() > 1 && random() % 2 == 0) {
    if (random() % 2 == 0)
      node->push_back(Json(any_of(*node, random)));
    else
      node->erase(below(node->size(), random));
    return way + ": another number of elements";
  }
  if (node->is_object() && !node->empty() && random() % 2 == 0) {
    auto item = node->begin();
    std::advance(item, static_cast<std::ptrdiff_t>(below(node->size(), random)));
    way += "." + item.key();
    node->erase(item);
    return way + " removed";
  }
  *node = any_value(random);
  return fmt::format("{} = {:.60}", way, node->dump());
}

// A key that stands for its value twice, or a number with too many digits.
std::string change_json_text(std::string& text, Random& random) {
  std::size_t at = text.find('"', below(text.size(), random));
  if (random() % 2 == 0) {
    at = text.find_first_of("0123456789", below(text.size(), random));
    text.insert(std::min(at, text.size()), std::string(400, '9'));
    return fmt::format("400 digits at {}", at);
  }
  const std::size_t open = text.rfind('{', at);
  const std::size_t key = open == text.npos ? open : text.find('"', open);
  const std::size_t end = key == text.npos ? key : text.find('"', key + 1);
  if (end == text.npos)
    return change_bytes(text, random);
  text.insert(open + 1, text.substr(key, end + 1 - key) + ": 5,");
  return fmt::format("a key twice at {}", open);
}

// The checksum is made right again: what is behind it is asked.
void seal(std::string& text) {
  const std::string key = "\"manifest_xxh3_128\": \"";
  const std::size_t at = text.find(key);
  if (at == text.npos || at + key.size() + 32 > text.size())
    return;
  text.replace(at + key.size(), 32, std::string(32, '0'));
  text.replace(at + key.size(), 32, xxh3_128(text.data(), text.size()));
}

// Fields whose every value but one contradicts what stands elsewhere.
bool is_bound(const std::string& way) {
  static const std::vector<std::string> bound = {
      ".step", ".format", ".files", ".state.step", ".state.seed", ".state.data_position", ".state.tokens"};
  static const std::vector<std::string> of_blocks = {".dtype", ".global_shape", ".start", ".count",
                                                     ".file",  ".offset",       ".bytes", ".xxh3_128"};
  const auto holds = [&](const std::string& part) { return way.find(part) != way.npos; };
  return std::ranges::any_of(bound, [&](const std::string& begin) { return way.starts_with(begin); }) ||
         (way.starts_with(".blocks[") && std::ranges::any_of(of_blocks, holds));
}

Mutation change_record(std::string& text, FileKind kind, Random& random) {
  Mutation mutation;
  if (random() % 6 == 0) {
    mutation.text = change_json_text(text, random);
    mutation.must_be_found = kind == FileKind::manifest && mutation.text.starts_with("a key twice");
  } else if (kind == FileKind::json_lines) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      lines.push_back(line);
    std::string& line = lines[below(lines.size(), random)];
    Json json = Json::parse(line, nullptr, false);
    std::string way;
    mutation.text = change_json(json, way, random);
    line = json.is_discarded() ? "" : json.dump();
    text.clear();
    for (const std::string& each : lines)
      text += each + "\n";
  } else {
    Json json = Json::parse(text);
    const Json before = json;
    std::string way;
    mutation.text = change_json(json, way, random);
    mutation.must_be_found = kind == FileKind::manifest && json != before && is_bound(way);
    text = json.dump(1) + "\n";
  }
  if (kind == FileKind::manifest) {
    seal(text);
    mutation.text += ", sealed";
  }
  return mutation;
}

// ---- TOML ----

std::string change_toml(std::string& text, Random& random) {
  const std::vector<std::string> values = {"nan",
                                           "inf",
                                           "-inf",
                                           "-5",
                                           "0",
                                           "1",
                                           "4611686018427387904",
                                           "1e308",
                                           "0.5",
                                           "true",
                                           "\"\"",
                                           "[]",
                                           "{}",
                                           "\"x\\u001b[31m\"",
                                           "1979-05-27",
                                           "[[1, 2], \"a\"]",
                                           "\"../../../etc\"",
                                           "{a.b.c = {d = [1]}}",
                                           repeated("[", 100000),
                                           "\"" + std::string(100000, 'x') + "\"",
                                           "0x7fffffffffffffff",
                                           "99999999999999999999",
                                           "\"1e400 GB\"",
                                           "\"0x1p1023 s\"",
                                           "'''",
                                           "\"\\uD800\""};
  std::vector<std::size_t> ends;
  for (std::size_t at = text.find('='); at != text.npos; at = text.find('=', at + 1))
    ends.push_back(at);
  if (ends.empty())
    return change_bytes(text, random);
  const std::size_t at = any_of(ends, random);
  const std::size_t begin = text.rfind('\n', at) == text.npos ? 0 : text.rfind('\n', at) + 1;
  const std::size_t end = std::min(text.find('\n', at), text.size());
  const std::string key = text.substr(begin, at - begin);
  switch (random() % 8) {
    case 0: text.insert(begin, text.substr(begin, end - begin) + "\n"); return key + "twice";
    case 1:
      text.insert(begin, repeated(key.substr(0, key.find(' ')) + ".", 50000) + "a = 1\n");
      return key + "of 50000 parts";
    case 2: text.erase(begin, end - begin); return key + "removed";
    default: {
      const std::string& value = any_of(values, random);
      text.replace(at + 1, end - at - 1, " " + value);
      return fmt::format("{}= {:.60}", key, value);
    }
  }
}

}  // namespace

Mutation mutate(const Path& file, FileKind kind, const Path& others, Random& random) {
  const bool is_checkpoint = file.parent_path().filename().string().starts_with("step-");
  if (random() % 12 == 0)
    return {change_file(file, others, random), false};
  const std::string before = read(file);
  std::string text = before;
  Mutation mutation;
  const bool has_syntax = kind != FileKind::binary && random() % 3 != 0;
  if (has_syntax && kind == FileKind::toml)
    mutation.text = change_toml(text, random);
  else if (has_syntax)
    mutation = change_record(text, kind, random);
  else if (kind != FileKind::binary && random() % 4 == 0)
    mutation.text = change_whole(text, random);
  else if (kind == FileKind::binary && !is_checkpoint && random() % 2 == 0 && text.size() > 64)
    mutation.text = fmt::format("byte {} of the header", text[below(64, random)] = static_cast<char>(random()));
  else
    mutation.text = change_bytes(text, random);
  if (!has_syntax && is_checkpoint)
    mutation.must_be_found = text != before;
  write(file, text);
  return mutation;
}

}  // namespace espalier::test
