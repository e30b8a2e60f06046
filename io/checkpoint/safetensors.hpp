// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "io/file.hpp"

// Weights as Hugging Face keeps them: safetensors files (https://github.com/huggingface/safetensors). A file begins
// with the length of its header (8 bytes, little endian) and the header, JSON: {"name": {"dtype": "BF16", "shape":
// [..], "data_offsets": [begin, end]}, ...}. The data follow, row-major. A large model has several files and
// model.safetensors.index.json, which says in which of them each tensor lies.

namespace espalier {

inline constexpr const char* safetensors_name = "model.safetensors";
inline constexpr const char* safetensors_index_name = "model.safetensors.index.json";

struct SafetensorsTensor {
  std::string dtype;               ///< as the file says: "BF16"
  std::optional<ScalarType> type;  ///< none: integers and others that hold no weights
  std::vector<Index> shape;
  std::string file;  ///< its name in the directory
  Index offset = 0;  ///< of the first byte in the file
};

/// The tensors of a directory. Only the headers are in memory. Every error is Error(data) and names the file, or the
/// directory where no file is to blame.
class SafetensorsReader {
 public:
  /// Reads model.safetensors; without one the files that the index names, as transformers does. Checks that every
  /// header describes its file: ranges inside it, of the right size, that neither overlap nor leave gaps.
  explicit SafetensorsReader(const Path& directory);

  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  const SafetensorsTensor& tensor(const std::string& name) const;

  /// Reads `count` elements from `start` on in each dimension, row-major, converted to `type`. Holds a few megabytes at
  /// a time, but at least a row of the first dimension.
  void read(const std::string& name, const std::vector<Index>& start, const std::vector<Index>& count, ScalarType type,
            void* destination) const;

 private:
  void read_header(const std::string& file);
  void read_indexed();

  Path directory_;
  std::map<std::string, SafetensorsTensor> tensors_;
};

/// Writes such a directory tensor by tensor, in the order of the list: one file, or several of at most `shard_bytes`
/// (one tensor may be more) and the index. Errors are Error(write).
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    ScalarType type = ScalarType::fp32;
    std::vector<Index> shape;
  };

  SafetensorsWriter(Path directory, std::vector<Tensor> tensors, Index shard_bytes);

  /// The data of the next tensor of the list, row-major, of its type.
  void write(const void* data);

  /// Writes the index, if there are several files, and returns when all are on disk. @pre all tensors are written
  void finish();

  /// Names of the files, for people.
  std::vector<std::string> files() const;

 private:
  struct Shard {
    std::string name;
    std::size_t begin = 0, end = 0;  // of the list
  };
  void open_next();

  Path directory_;
  std::vector<Tensor> tensors_;
  std::vector<Shard> shards_;
  std::size_t written_ = 0;  // tensors
  std::size_t open_ = 0;     // shards that were begun
  std::optional<OutputFile> file_;
};

}  // namespace espalier
