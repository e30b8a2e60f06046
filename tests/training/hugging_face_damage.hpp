// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/app/mutations.hpp"
#include "tests/training/hugging_face_models.hpp"

// Ways to damage or forge a Hugging Face directory whose weights lie in several files.

namespace espalier::test {

/// A safetensors file in its parts.
struct ShardText {
  std::string header;  ///< JSON
  std::string data;
};

inline ShardText read_shard(const Path& path) {
  const std::string bytes = read_bytes(path);
  std::uint64_t length = 0;
  if (bytes.size() >= 8)
    std::memcpy(&length, bytes.data(), 8);
  if (bytes.size() < 8 || length > bytes.size() - 8)
    return {};
  return {bytes.substr(8, length), bytes.substr(8 + length)};
}

inline void write_shard_text(const Path& path, const ShardText& shard, std::uint64_t length) {
  write_bytes(path, std::string(reinterpret_cast<const char*>(&length), 8) + shard.header + shard.data);
}
inline void write_shard_text(const Path& path, const ShardText& shard) {
  write_shard_text(path, shard, shard.header.size());
}

/// Neither a link, nor a pipe, nor one of gigabytes: those that damage makes are left as they are.
inline bool is_small_file(const Path& path) {
  std::error_code missing;
  return std::filesystem::symlink_status(path, missing).type() == std::filesystem::file_type::regular &&
         std::filesystem::file_size(path) < (1 << 22);
}

/// The weights of the directory, in the order of their names.
inline std::vector<Path> shards_in(const Path& directory) {
  std::vector<Path> shards;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().extension() == ".safetensors" && is_small_file(entry.path()))
      shards.push_back(entry.path());
  std::ranges::sort(shards);
  return shards;
}

/// Damages one directory, a copy of `base`.
class HuggingFaceDamage {
 public:
  HuggingFaceDamage(Path directory, Path base, Random& random)
      : directory_(std::move(directory)), base_(std::move(base)), random_(random) {}

  /// In one way, or in two. Returns what was done.
  std::string apply() {
    const std::string first = once();
    return random_() % 8 == 0 ? first + "; " + once() : first;
  }

 private:
  using Json = nlohmann::ordered_json;

  template <class List>
  auto& any(List& list) {
    return list[random_() % list.size()];
  }

  std::string once() {
    const std::vector<Path> shards = shards_in(directory_);
    if (shards.empty())
      return "no shard is left";
    const Path shard = any(shards);
    const std::string name = shard.filename().string() + ": ";
    switch (random_() % 16) {
      case 0:
      case 1: return "config.json: " + change(directory_ / "config.json", FileKind::json);
      case 2:
      case 3: return "index: " + change(directory_ / safetensors_index_name, FileKind::json);
      case 4: return name + change(shard, FileKind::binary);
      case 5: return name + change_length(shard);
      case 6:
      case 7: return name + change_header(shard);
      case 8: return move_tensor(shards);
      case 9: return remap();
      default: return name + change_entry(shard);
    }
  }

  std::string change(const Path& path, FileKind kind) {
    if (!is_small_file(path))
      return "left as it is";
    const bool is_json = kind == FileKind::json && Json::accept(read_bytes(path));
    return mutate(path, is_json ? kind : FileKind::binary, base_, random_).text;
  }

  std::string change_length(const Path& path) {
    const ShardText shard = read_shard(path);
    const std::uint64_t size = shard.header.size(), all = size + shard.data.size();
    const std::vector<std::uint64_t> lengths = {0,           1,           size - 1,    size + 1, size + 8, all,
                                                all + 1,     all - 1,     all + 8,     size / 2, all / 2,  1 << 20,
                                                100'000'001, 1ULL << 31U, 1ULL << 63U, ~0ULL};
    const std::uint64_t length = any(lengths);
    write_shard_text(path, shard, length);
    return fmt::format("the header's length is {}", length);
  }

  // As any JSON; its length fits, mostly.
  std::string change_header(const Path& path) {
    ShardText shard = read_shard(path);
    const Path text = directory_ / "header";
    write_bytes(text, shard.header);
    const std::string what = change(text, FileKind::json);
    const bool is_text = is_small_file(text);
    const std::uint64_t before = shard.header.size();
    if (is_text)
      shard.header = read_bytes(text);
    std::filesystem::remove_all(text);
    write_shard_text(path, shard, random_() % 8 == 0 ? before : shard.header.size());
    return "header: " + (is_text ? what : "written again");
  }

  // A field of a tensor, near what it was.
  std::string change_entry(const Path& path) {
    ShardText shard = read_shard(path);
    Json header = Json::parse(shard.header, nullptr, false);
    std::vector<std::string> names = names_in(header);
    if (names.empty())
      return "no header is left";
    const std::string name = any(names), other = any(names);
    Json& entry = header[name];
    std::string what = name;
    if (!entry.contains("data_offsets") || !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2 ||
        !entry["data_offsets"][0].is_number_integer() || !entry["data_offsets"][1].is_number_integer())
      return "no offsets are left";
    const std::vector<Index> steps = {1, -1, 2, -2, 4, -4, 8, -64, 128, Index{1} << 32, Index{1} << 62};
    const Index step = any(steps);
    const auto move = [&](Json& number) {
      number = static_cast<Index>(number.get<std::uint64_t>() + static_cast<std::uint64_t>(step));
    };
    switch (random_() % 8) {
      case 0: move(entry["data_offsets"][0]), what += " begins elsewhere"; break;
      case 1: move(entry["data_offsets"][1]), what += " ends elsewhere"; break;
      case 2:
        move(entry["data_offsets"][0]), move(entry["data_offsets"][1]);
        what += " moved";
        break;
      case 3:
        entry["data_offsets"] = header[other].value("data_offsets", Json()), what += " where lies " + other;
        break;
      case 4:
        std::swap(entry["data_offsets"], header[other]["data_offsets"]), what += " in exchange with " + other;
        break;
      case 5: {
        const std::vector<std::string> types = {"F64", "F32", "BF16", "F16", "I32", "U8", "F8_E4M3", "F4", "f32", ""};
        entry["dtype"] = any(types), what += " of another type";
        break;
      }
      case 6: {
        Json& shape = entry["shape"];
        if (!shape.is_array() || random_() % 4 == 0)
          shape = Json::array({any(steps)});
        else if (random_() % 2 == 0)
          std::reverse(shape.begin(), shape.end());
        else
          shape.push_back(any(steps));
        what += " of another shape";
        break;
      }
      default: header[other] = Json(entry), what += " twice, as " + other; break;
    }
    shard.header = header.dump();
    write_shard_text(path, shard);
    return what + fmt::format(" ({})", step);
  }

  // From one file into another, or into both.
  std::string move_tensor(const std::vector<Path>& shards) {
    const Path from = any(shards), to = any(shards);
    ShardText source = read_shard(from), target = read_shard(to);
    Json first = Json::parse(source.header, nullptr, false), second = Json::parse(target.header, nullptr, false);
    const std::vector<std::string> names = names_in(first);
    if (names.empty() || second.is_discarded() || !second.is_object())
      return "no header is left";
    const std::string name = any(names);
    Json entry = first[name];
    const Json& offsets = entry["data_offsets"];
    if (random_() % 2 == 0 && offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() &&
        offsets[1].is_number_unsigned()) {  // with its bytes: then the file itself is as it should be
      const auto begin = std::min(offsets[0].get<std::size_t>(), source.data.size());
      const auto end = std::clamp(offsets[1].get<std::size_t>(), begin, source.data.size());
      const std::string bytes = source.data.substr(begin, end - begin);
      entry["data_offsets"] = {target.data.size(), target.data.size() + bytes.size()};
      target.data += bytes;
    }
    second[name] = entry;
    target.header = second.dump();
    if (random_() % 2 == 0) {
      first.erase(name);
      source.header = first.dump();
      write_shard_text(from, source);
    }
    write_shard_text(to, target);
    return fmt::format("{} of {} in {}", name, from.filename().string(), to.filename().string());
  }

  // Another file in the index, for one tensor or for all of a file.
  std::string remap() {
    const Path path = directory_ / safetensors_index_name;
    Json index = Json::parse(is_small_file(path) ? read_bytes(path) : "", nullptr, false);
    if (index.is_discarded() || !index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
      return "no index is left";
    std::vector<std::string> names;
    for (const auto& [name, file] : index["weight_map"].items())
      names.push_back(name);
    if (names.empty())
      return "no index is left";
    std::vector<std::string> files = {"../secret.safetensors",
                                      "/etc/passwd",
                                      "config.json",
                                      ".",
                                      "..",
                                      "",
                                      std::string("model-00001-of-00002.safetensors\0x", 34),
                                      "link.safetensors",
                                      "model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors"};
    std::error_code is_there;
    std::filesystem::create_symlink("nowhere", directory_ / "link.safetensors", is_there);
    const std::string name = any(names), file = any(files);
    const Json before = index["weight_map"][name];
    const bool whole = random_() % 2 == 0;
    for (auto& [other, place] : index["weight_map"].items())
      if (other == name || (whole && place == before))
        place = file;
    write_bytes(path, index.dump());
    return fmt::format("index: {}{} in {}", name, whole ? " and all of its file" : "", file);
  }

  static std::vector<std::string> names_in(const Json& header) {
    std::vector<std::string> names;
    if (header.is_object())
      for (const auto& [name, entry] : header.items())
        if (name != "__metadata__" && entry.is_object())
          names.push_back(name);
    return names;
  }

  Path directory_, base_;
  Random& random_;
};

}  // namespace espalier::test
