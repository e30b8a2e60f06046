// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <set>

#include "core/memory_text.hpp"
#include "core/parameter_spec.hpp"
#include "core/tensor.hpp"
#include "io/checkpoint/block_copy.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors hold numbers of little-endian machines");

constexpr std::size_t length_bytes = 8;              // of the header's length
constexpr std::size_t longest_header = 100'000'000;  // as the reference implementation has it
constexpr Index read_at_once = Index{8} << 20;

struct Dtype {
  const char* name;
  Index bytes;
  std::optional<ScalarType> type;
};
constexpr Dtype dtypes[] = {{"F64", 8, ScalarType::fp64}, {"F32", 4, ScalarType::fp32}, {"BF16", 2, ScalarType::bf16},
                            {"F16", 2, ScalarType::fp16}, {"I64", 8, std::nullopt},     {"U64", 8, std::nullopt},
                            {"I32", 4, std::nullopt},     {"U32", 4, std::nullopt},     {"I16", 2, std::nullopt},
                            {"U16", 2, std::nullopt},     {"I8", 1, std::nullopt},      {"U8", 1, std::nullopt},
                            {"BOOL", 1, std::nullopt},    {"F8_E4M3", 1, std::nullopt}, {"F8_E5M2", 1, std::nullopt}};

const char* dtype_of(ScalarType type) {
  return std::ranges::find_if(dtypes, [&](const Dtype& dtype) { return dtype.type == type; })->name;
}

[[noreturn]] void refuse_weights(const Path& path, const std::string& what, const std::string& got,
                                 const std::string& wanted, const std::string& todo = "copy the file again, whole") {
  throw Error(ExitCode::data, {.what = what, .where = path.string(), .got = got, .wanted = wanted, .todo = todo});
}

Index bytes_of(const SafetensorsWriter::Tensor& tensor) {
  return num_elements(tensor.shape) * static_cast<Index>(size_of(tensor.type));
}

// One entry of a header, with its place in the data section.
struct HeaderEntry {
  std::string name;
  SafetensorsTensor tensor;
  IndexRange bytes;
};

HeaderEntry entry_from(const std::string& name, const nlohmann::json& item) {
  HeaderEntry entry{.name = name, .tensor = {}, .bytes = {}};
  entry.tensor.dtype = field<std::string>(item, "dtype");
  const auto dtype = std::ranges::find(dtypes, entry.tensor.dtype, [](const Dtype& d) { return std::string(d.name); });
  if (dtype == std::end(dtypes))
    refuse_field("dtype", item.at("dtype"), "a type of the safetensors format");
  entry.tensor.type = dtype->type;
  entry.tensor.shape = values_field<Index>(item, "shape", IntegerRange{0, Index{1} << 40});
  const auto offsets = values_field<Index>(item, "data_offsets", IntegerRange{0});
  if (offsets.size() != 2 || offsets[0] > offsets[1])
    refuse_field("data_offsets", item.at("data_offsets"), "[begin, end] inside the file");
  entry.bytes = {offsets[0], offsets[1]};
  const Index size = offsets[1] - offsets[0];
  Index bytes = std::ranges::count(entry.tensor.shape, 0) > 0 ? 0 : dtype->bytes;
  for (const Index extent : entry.tensor.shape)
    if (bytes > 0 && bytes > size / extent)
      refuse_field("shape", entry.tensor.shape, fmt::format("a tensor of {} bytes, as its data_offsets say", size));
    else
      bytes *= extent;
  if (size != bytes)
    refuse_field("data_offsets", offsets, fmt::format("{} bytes, as its shape says", bytes));
  return entry;
}

// The same, where an error names the tensor.
HeaderEntry named_entry(const std::string& name, const nlohmann::json& item) {
  try {
    return entry_from(name, item);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{:.100}: {}", name, error.what()));
  }
}

// In a file of the right size a tensor beyond the end is the one whose place is wrong; in others all that follow are.
void require_inside(const Path& path, const std::vector<HeaderEntry>& entries, Index data_bytes) {
  std::uint64_t sum = 0;
  for (const HeaderEntry& entry : entries)
    sum += static_cast<std::uint64_t>(entry.bytes.size());
  for (const HeaderEntry& entry : entries)
    if (sum == static_cast<std::uint64_t>(data_bytes) && entry.bytes.end > data_bytes)
      refuse_weights(path, "a tensor of a safetensors file is beyond the end of the file",
                     fmt::format("{} ends at byte {} of the data", entry.name, entry.bytes.end),
                     fmt::format("at most {}, all that there is", data_bytes));
}

// A link that leads nowhere is there: opening it says so.
bool is_there(const Path& path) {
  std::error_code missing;
  return std::filesystem::symlink_status(path, missing).type() != std::filesystem::file_type::not_found;
}

// Of a file of the directory itself: no path leads out of it, and none ends before the name does.
bool is_file_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name.find('\0') == std::string::npos && name != "." &&
         name != "..";
}

}  // namespace

SafetensorsReader::SafetensorsReader(const Path& directory) : directory_(directory) {
  const bool has_pickles = is_there(directory / "pytorch_model.bin");
  if (is_there(directory / safetensors_name))
    read_header(safetensors_name);
  else if (is_there(directory / safetensors_index_name))
    read_indexed();
  else
    refuse_weights(directory, "the directory has no weights in the safetensors format",
                   has_pickles ? "pytorch_model.bin" : "neither of the files",
                   fmt::format("{} or {}", safetensors_name, safetensors_index_name),
                   has_pickles ? "save it again with transformers: model.save_pretrained(DIRECTORY)"
                               : "name the directory of a Hugging Face model, with config.json in it");
}

void SafetensorsReader::read_indexed() {
  const Path index = directory_ / safetensors_index_name;
  std::map<std::string, std::string> files;  // by tensor
  try {
    const nlohmann::json json = parse_json(read_file(index, ExitCode::data, longest_header));
    for (const auto& [name, file] : object_field(json, "weight_map").items())
      files[name] = value_from<std::string>(file, "weight_map");
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    refuse_weights(index, "the index of a model's weights cannot be read", error.what(),
                   "{\"weight_map\": {tensor: file}}");
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) {
    if (!is_file_name(file))
      refuse_weights(index, "the index of a model's weights names a file elsewhere", '"' + file + '"',
                     "files of the same directory", "load only models from people whom you trust");
    if (!names.contains(file) && !is_there(directory_ / file))
      refuse_weights(directory_ / file, "a file of weights is missing", "no such file",
                     fmt::format("the file in which {} says that {} lies", safetensors_index_name, tensor),
                     "copy or download it again, into the same directory");
    names.insert(file);
  }
  for (const std::string& name : names)
    read_header(name);
  for (const auto& [tensor, file] : files)
    if (!contains(tensor) || tensors_.at(tensor).file != file)
      refuse_weights(directory_ / file, "a file of weights does not have all its tensors",
                     contains(tensor) ? "it is in another file" : "no " + tensor, tensor + ", as the index says");
}

void SafetensorsReader::read_header(const std::string& file) {
  const Path path = directory_ / file;
  const InputFile input(path, ExitCode::data);
  std::uint64_t length = 0;
  if (input.size() >= length_bytes)
    input.read_at(0, &length, length_bytes);
  if (input.size() < length_bytes || length > std::min(longest_header, input.size() - length_bytes))
    refuse_weights(path, "a file of weights is not in the safetensors format, or was cut",
                   input.size() < length_bytes ? fmt::format("{} bytes", input.size())
                                               : fmt::format("{} bytes, and a header of {}", input.size(), length),
                   "a whole file");
  std::string header(length, '\0');
  input.read_at(length_bytes, header.data(), length);
  const std::size_t begin = length_bytes + length;
  const auto data_bytes = static_cast<Index>(input.size() - begin);
  std::vector<HeaderEntry> entries;
  try {
    const nlohmann::json json = parse_json(header);
    if (!json.is_object())
      throw std::runtime_error("the header is not an object");
    for (const auto& [name, item] : json.items())
      if (name != "__metadata__")
        entries.push_back(named_entry(name, item));
  } catch (const std::runtime_error& error) {
    refuse_weights(path, "the header of a safetensors file cannot be used", error.what(),
                   "the header that transformers writes");
  }
  std::ranges::sort(entries, {},
                    [](const HeaderEntry& entry) { return std::pair(entry.bytes.begin, entry.bytes.end); });
  require_inside(path, entries, data_bytes);
  Index end = 0;
  std::string before = "the data begins";
  for (const HeaderEntry& entry : entries) {
    if (entry.bytes.begin != end)
      refuse_weights(path, "tensors of a safetensors file overlap or leave a gap",
                     fmt::format("{} begins at byte {} of the data", entry.name, entry.bytes.begin),
                     fmt::format("byte {}, where {}", end, before));
    end = entry.bytes.end;
    before = entry.name + " ends";
  }
  if (end != data_bytes)
    refuse_weights(path, "a file of weights became shorter or longer", fmt::format("{} bytes of data", data_bytes),
                   fmt::format("{} by its header", end));
  for (HeaderEntry& entry : entries) {
    entry.tensor.file = file;
    entry.tensor.offset = static_cast<Index>(begin) + entry.bytes.begin;
    const auto [found, is_new] = tensors_.emplace(entry.name, std::move(entry.tensor));
    if (!is_new)
      refuse_weights(path, "two files of weights have the same tensor",
                     fmt::format("{}, as {}", entry.name, found->second.file), "each tensor once",
                     "leave the files of one save in the directory, and no others");
  }
}

const SafetensorsTensor& SafetensorsReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    refuse_weights(directory_, "the weights lack a tensor", fmt::format("{} other tensors", tensors_.size()), name,
                   "is config.json that of these weights?");
  return found->second;
}

void SafetensorsReader::read(const std::string& name, const std::vector<Index>& start, const std::vector<Index>& count,
                             ScalarType type, void* destination) const {
  const SafetensorsTensor& stored = tensor(name);
  const Path path = directory_ / stored.file;
  const std::size_t rank = stored.shape.size();
  bool inside = start.size() == rank && count.size() == rank && rank > 0;
  for (std::size_t d = 0; inside && d < rank; ++d)
    inside = start[d] >= 0 && count[d] >= 1 && start[d] + count[d] <= stored.shape[d];
  if (!inside || !stored.type)
    refuse_weights(
        path, "a tensor of the weights is not the one that config.json describes",
        fmt::format("{} ({}), {}", name, fmt::join(stored.shape, ", "), stored.dtype),
        fmt::format("a part ({}) from ({}) of floating-point numbers", fmt::join(count, ", "), fmt::join(start, ", ")),
        "is config.json that of these weights?");
  // The rows of the first dimension that are wanted, some at a time.
  const InputFile input(path, ExitCode::data);
  const Index row = num_elements({stored.shape.begin() + 1, stored.shape.end()});
  const auto row_bytes = row * static_cast<Index>(size_of(*stored.type));
  const Index out_row_bytes = num_elements({count.begin() + 1, count.end()}) * static_cast<Index>(size_of(type));
  const Index rows_at_once = std::max<Index>(1, read_at_once / std::max<Index>(1, row_bytes));
  std::vector<unsigned char> piece;
  Box source{std::vector<Index>(rank, 0), stored.shape}, target{start, count};
  for (Index done = 0; done < count[0]; done += rows_at_once) {
    const Index rows = std::min(rows_at_once, count[0] - done);
    source.start[0] = target.start[0] = start[0] + done;
    source.count[0] = target.count[0] = rows;
    piece.resize(static_cast<std::size_t>(rows * row_bytes));
    input.read_at(static_cast<std::size_t>(stored.offset + source.start[0] * row_bytes), piece.data(), piece.size());
    copy_overlap(source, *stored.type, piece.data(), target, type,
                 static_cast<unsigned char*>(destination) + done * out_row_bytes);
  }
}

SafetensorsWriter::SafetensorsWriter(Path directory, std::vector<Tensor> tensors, Index shard_bytes)
    : directory_(std::move(directory)), tensors_(std::move(tensors)) {
  Index used = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Index bytes = bytes_of(tensors_[i]);
    if (shards_.empty() || (used > 0 && used + bytes > shard_bytes)) {
      shards_.push_back({{}, i, i});
      used = 0;
    }
    used += bytes;
    shards_.back().end = i + 1;
  }
  Index total = 0;
  for (const Tensor& tensor : tensors_)
    total += bytes_of(tensor);
  std::error_code unknown;
  const auto space = std::filesystem::space(directory_, unknown);
  if (!unknown && space.available < static_cast<std::uintmax_t>(total))
    throw Error(ExitCode::write, {.what = "no space for the weights",
                                  .where = directory_.string(),
                                  .got = fmt::format("{} free", bytes_text(space.available)),
                                  .wanted = bytes_text(static_cast<std::size_t>(total)),
                                  .todo = "free some space there, or choose another directory"});
  for (std::size_t s = 0; s < shards_.size(); ++s)
    shards_[s].name = shards_.size() == 1 ? std::string(safetensors_name)
                                          : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards_.size());
}

void SafetensorsWriter::open_next() {
  const Shard& shard = shards_.at(open_++);
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};  // transformers asks for it
  Index offset = 0;
  for (std::size_t i = shard.begin; i < shard.end; ++i) {
    const Tensor& tensor = tensors_[i];
    const Index bytes = bytes_of(tensor);
    header[tensor.name] = {
        {"dtype", dtype_of(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = json_text(header);
  text.resize((text.size() + length_bytes - 1) / length_bytes * length_bytes, ' ');  // data begin aligned
  const std::uint64_t length = text.size();
  file_.emplace(directory_ / shard.name);
  file_->write(&length, length_bytes);
  file_->write(text.data(), text.size());
}

void SafetensorsWriter::write(const void* data) {
  if (open_ == 0 || shards_[open_ - 1].end == written_) {
    if (file_)
      file_->sync_and_close();
    open_next();
  }
  const Tensor& tensor = tensors_.at(written_++);
  file_->write(data, static_cast<std::size_t>(bytes_of(tensor)));
}

void SafetensorsWriter::finish() {
  ESPALIER_ASSERT(written_ == tensors_.size(), "not all tensors are written");
  if (file_)
    file_->sync_and_close();
  file_.reset();
  if (shards_.size() > 1) {
    nlohmann::ordered_json index;
    Index total = 0;
    for (const Shard& shard : shards_)
      for (std::size_t i = shard.begin; i < shard.end; ++i) {
        total += bytes_of(tensors_[i]);
        index["weight_map"][tensors_[i].name] = shard.name;
      }
    index["metadata"] = {{"total_size", total}};
    write_file_atomically(directory_ / safetensors_index_name, json_text(index, 2) + "\n");
  }
  sync_directory(directory_);
}

std::vector<std::string> SafetensorsWriter::files() const {
  std::vector<std::string> names;
  for (const Shard& shard : shards_)
    names.push_back(shard.name);
  if (shards_.size() > 1)
    names.emplace_back(safetensors_index_name);
  return names;
}

}  // namespace espalier
