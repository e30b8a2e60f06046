// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/checkpoint_manifest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "core/tensor.hpp"
#include "io/checkpoint/atomic_directory.hpp"
#include "io/hash.hpp"
#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"

namespace espalier {
namespace {

constexpr std::array split = {".attention.query.", ".attention.key.", ".attention.value."};

using nlohmann::json;

constexpr const char* format_name = "espalier-checkpoint";
constexpr IntegerRange not_negative{.min = 0};
const std::string checksum_key = "\"manifest_xxh3_128\": \"";
const std::string zero_checksum(32, '0');

std::string hash_field(const json& item, const char* key) {
  auto digits = field<std::string>(item, key);
  if (!digits.empty() && (digits.size() != 32 || digits.find_first_not_of("0123456789abcdef") != digits.npos))
    refuse_field(key, any_field(item, key), "32 hexadecimal digits");  // none yet in what a writer plans
  return digits;
}

bool is_dataset_name(const std::string& name) {
  if (name.empty() || name.front() == '/' || name.back() == '/' || name.find("//") != std::string::npos)
    return false;
  return std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

json block_to_json(const StoredBlock& block) {
  return {{"tensor", block.name},      {"dtype", to_string(block.type)}, {"global_shape", block.global_shape},
          {"start", block.start},      {"count", block.count},           {"file", block.file},
          {"dataset", block.dataset},  {"offset", block.extent.offset},  {"bytes", block.extent.bytes},
          {"xxh3_128", block.xxh3_128}};
}

StoredBlock block_from_json(const json& item) {
  return {field<std::string>(item, "tensor"),
          choice_field(item, "dtype", all_scalar_types),
          values_field<Index>(item, "global_shape", not_negative),
          values_field<Index>(item, "start"),
          values_field<Index>(item, "count", not_negative),
          field<std::string>(item, "file"),
          field<std::string>(item, "dataset"),
          {field<Index>(item, "offset", not_negative), field<Index>(item, "bytes", not_negative)},
          hash_field(item, "xxh3_128")};
}

json file_to_json(const StoredFile& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"metadata_xxh3_128", file.xxh3_128}};
}

StoredFile file_from_json(const json& item) {
  return {field<std::string>(item, "name"), field<Index>(item, "bytes", not_negative),
          hash_field(item, "metadata_xxh3_128")};
}

CheckpointInfo info_from_json(const json& root) {
  const json& layout = object_field(root, "layout");
  const auto owner = field_or(root, "owner", std::string());  // not in those of older versions
  if (!owner.empty() && !is_owner(owner))
    refuse_field("owner", root["owner"], "the id of a run");
  return {.run = field<std::string>(root, "run"),
          .step = field<Index>(root, "step", count_range),
          .layout = {field_or(layout, "text", std::string("an unknown layout")),
                     field_or(layout, "world", Index{1}, IntegerRange{1, Index{1} << 31})},
          .state = object_field(root, "state"),
          .owner = owner};
}

void check_block(const StoredBlock& block, Index file_bytes, const Path& path) {
  const std::size_t rank = block.global_shape.size();
  const auto fail = [&](const std::string& what) {
    refuse_manifest(path, fmt::format("tensor {}: {}", block.name, what),
                    fmt::format("shape ({}), start ({}), count ({}), {} bytes at {}",
                                fmt::join(block.global_shape, ", "), fmt::join(block.start, ", "),
                                fmt::join(block.count, ", "), block.extent.bytes, block.extent.offset));
  };
  if (!is_dataset_name(block.dataset) || !is_dataset_name(block.name))
    fail("impossible name");
  if (rank > 32 || block.start.size() != rank || block.count.size() != rank)
    fail("shape, start and count disagree");
  Index elements = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    if (block.global_shape[d] < 1 || block.start[d] < 0 || block.count[d] < 1 ||
        block.count[d] > block.global_shape[d] || block.start[d] > block.global_shape[d] - block.count[d])
      fail("a block outside its tensor");
    if (elements > (Index{1} << 55) / block.global_shape[d])
      fail("an absurd size");
    elements *= block.global_shape[d];
  }
  if (block.extent.bytes != num_elements(block.count) * static_cast<Index>(size_of(block.type)) ||
      block.extent.offset < 0 || block.extent.offset > file_bytes - block.extent.bytes)
    fail("a block outside its file");
}

// 0 in a text that does not say.
Index version_in(const std::string& text) {
  try {
    return field<Index>(parse_json(text), "format_version");
  } catch (const std::runtime_error&) {
    return 0;
  }
}

// The bytes of the blocks of a file lie apart: else one byte could be read as often as there are blocks.
void check_extents(const std::vector<StoredBlock>& blocks, const Path& path) {
  std::vector<const StoredBlock*> sorted;
  for (const StoredBlock& block : blocks)
    sorted.push_back(&block);
  const auto begin_of = [](const StoredBlock* block) { return std::tie(block->file, block->extent.offset); };
  std::ranges::sort(sorted, {}, begin_of);
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (const StoredBlock& before = *sorted[i - 1];
        before.file == sorted[i]->file && sorted[i]->extent.offset - before.extent.offset < before.extent.bytes)
      refuse_manifest(path, "two blocks of a checkpoint share bytes of a file",
                      fmt::format("{}: datasets {} and {}", before.file, before.dataset, sorted[i]->dataset),
                      "bytes of its own for every block");
}

}  // namespace

bool is_name_of_version(const std::string& tensor, int version) {
  return version > 1 ||
         std::ranges::none_of(split, [&](const char* name) { return tensor.find(name) != std::string::npos; });
}

std::map<std::string, StoredPart> parts_of_stored(const std::string& tensor, int version) {
  const std::string joined = ".attention.qkv.";
  const std::size_t at = tensor.find(joined);
  if (version > 1 || at == std::string::npos)
    return {};
  std::map<std::string, StoredPart> parts;
  Index part = 0;
  for (const char* const name : split)
    parts[std::string(tensor).replace(at, joined.size(), name)] = {tensor, part++};
  return parts;
}

void refuse_manifest(const Path& path, const std::string& what, std::string got, std::string wanted, std::string todo) {
  throw Error(ExitCode::checkpoint,
              {.what = what,
               .where = path.string(),
               .got = std::move(got),
               .wanted = std::move(wanted),
               .todo = todo.empty() ? "use another checkpoint; this one was damaged or not written by Espalier"
                                    : std::move(todo)});
}

void require_known_version(const Path& path, Index version) {
  if (version > checkpoint_format_version)
    refuse_manifest(path, "a checkpoint of a newer format", fmt::format("version {}", version),
                    fmt::format("version {} at most", checkpoint_format_version),
                    "use the version of Espalier that wrote it, or a newer one");
}

json to_json(const ShardRecord& record) {
  json blocks = json::array();
  for (const StoredBlock& block : record.blocks)
    blocks.push_back(block_to_json(block));
  return {{"file", file_to_json(record.file)}, {"blocks", std::move(blocks)}};
}

ShardRecord shard_record_from_json(const json& item) {
  ShardRecord record{file_from_json(object_field(item, "file")), {}};
  for (const json& block : list_field(item, "blocks"))
    record.blocks.push_back(block_from_json(block));
  return record;
}

std::string to_text(const Manifest& manifest) {
  nlohmann::ordered_json root;
  root["format"] = format_name;
  root["format_version"] = manifest.version;
  root["manifest_xxh3_128"] = zero_checksum;
  root["run"] = manifest.info.run;
  root["owner"] = manifest.info.owner;
  root["step"] = manifest.info.step;
  root["layout"] = {{"text", manifest.info.layout.text}, {"world", manifest.info.layout.world}};
  root["state"] = manifest.info.state;
  json files = json::array();
  for (const StoredFile& file : manifest.files)
    files.push_back(file_to_json(file));
  root["files"] = files;
  if (manifest.index)
    root["index"] = {
        {"name", manifest.index->name}, {"bytes", manifest.index->bytes}, {"xxh3_128", manifest.index->xxh3_128}};
  json blocks = json::array();
  for (const StoredBlock& block : manifest.blocks)
    blocks.push_back(block_to_json(block));
  root["blocks"] = blocks;
  std::string text = json_text(root, 1) + "\n";
  text.replace(text.find(checksum_key) + checksum_key.size(), 32, xxh3_128(text.data(), text.size()));
  return text;
}

Manifest parse_manifest(const std::string& text, const Path& path) {
  // The key stands near the start; a run whose name contains it comes later.
  const std::size_t key = text.find(checksum_key);
  if (key == std::string::npos || key + checksum_key.size() + 32 > text.size())
    refuse_manifest(path, "a checkpoint manifest was not written by Espalier",
                    fmt::format("{} bytes without a checksum", text.size()), "a complete manifest.json");
  std::string zeroed = text;
  zeroed.replace(key + checksum_key.size(), 32, zero_checksum);
  const std::string wanted = text.substr(key + checksum_key.size(), 32);
  const std::string found = xxh3_128(zeroed.data(), zeroed.size());
  if (found != wanted) {
    require_known_version(path, version_in(text));  // a newer format may define its checksum otherwise
    refuse_manifest(path, "a checkpoint manifest is damaged", "XXH3-128 " + found, wanted);
  }
  Manifest manifest;
  try {
    const json root = parse_json(text);
    const auto version = field<Index>(root, "format_version");
    require_known_version(path, version);
    if (field<std::string>(root, "format") != format_name || version < oldest_checkpoint_version)
      refuse_manifest(
          path, "a checkpoint of another format", fmt::format("{} version {}", json_text(root.at("format")), version),
          fmt::format("\"{}\" version {} to {}", format_name, oldest_checkpoint_version, checkpoint_format_version));
    manifest.version = static_cast<int>(version);
    manifest.info = info_from_json(root);
    for (const json& file : list_field(root, "files"))
      manifest.files.push_back(file_from_json(file));
    for (const json& block : list_field(root, "blocks"))
      manifest.blocks.push_back(block_from_json(block));
    if (root.contains("index")) {
      const json& index = object_field(root, "index");
      manifest.index = {field<std::string>(index, "name"), field<Index>(index, "bytes", not_negative),
                        hash_field(index, "xxh3_128")};
    }
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    refuse_manifest(path, "a checkpoint manifest cannot be understood", error.what(),
                    "the keys of docs/checkpoint_format.md");
  }
  std::map<std::string, Index> file_bytes;
  for (const StoredFile& file : manifest.files)
    if (!is_shard_name(file.name) || file.bytes < 0 || !file_bytes.emplace(file.name, file.bytes).second)
      refuse_manifest(path, "a checkpoint manifest names an impossible file", '"' + file.name + '"',
                      "rank-00000.h5 and so on, in the directory itself, each once");
  if (manifest.index && manifest.index->name != index_name)
    refuse_manifest(path, "a checkpoint manifest names an impossible file", '"' + manifest.index->name + '"',
                    index_name);
  std::set<std::pair<std::string, std::string>> datasets;
  for (const StoredBlock& block : manifest.blocks) {
    const auto file = file_bytes.find(block.file);
    if (file == file_bytes.end() || !datasets.insert({block.file, block.dataset}).second)
      refuse_manifest(path, "a checkpoint manifest names an impossible file", block.file + ": dataset " + block.dataset,
                      "files of its list, each dataset once");
    if (!is_name_of_version(block.name, manifest.version))
      refuse_manifest(path, "a checkpoint's tensor has the name of another version", block.name,
                      fmt::format("a name of version {}", manifest.version));
    check_block(block, file->second, path);
  }
  check_extents(manifest.blocks, path);
  check_coverage(manifest.blocks, path);
  return manifest;
}

}  // namespace espalier
