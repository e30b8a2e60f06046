// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/file_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/json_reader.hpp"

namespace espalier {
namespace {

using namespace std::string_view_literals;

struct Mark {
  std::string_view bytes;
  const char* name;
  const char* todo;
  std::size_t offset = 0;
};

constexpr const char* unpack = "unpack it first";
constexpr const char* convert_array = "write its tokens as raw uint16: array.astype('uint16').tofile('train.bin')";
constexpr const char* convert_text = "write its text to plain files and use `espalier data pack`";
constexpr const char* to_utf8 = "make it UTF-8: iconv -f UTF-16 -t UTF-8 IN >OUT";
constexpr const char* from_utf32 = "make it UTF-8: iconv -f UTF-32 -t UTF-8 IN >OUT";

constexpr std::array marks = {
    Mark{"ESPTOKEN"sv, "a token file of Espalier", "give the text that it was made from"},
    Mark{"MMIDIDX\0\0"sv, "the index of a Megatron data set", "convert the data set to llm.c's format or raw uint16"},
    Mark{"\x93NUMPY"sv, "an array of NumPy (.npy)", convert_array},
    Mark{"PK\3\4"sv, "a zip archive (.npz and PyTorch's .pt are ones)", unpack},
    Mark{"\x1f\x8b\x08"sv, "a gzip archive", unpack},
    Mark{"\x28\xb5\x2f\xfd"sv, "a zstd archive", unpack},
    Mark{"\xfd"
         "7zXZ\0"sv,
         "an xz archive", unpack},
    Mark{"BZh"sv, "a bzip2 archive", unpack},
    Mark{"\x04\x22\x4d\x18"sv, "an lz4 archive", unpack},
    Mark{"7z\xbc\xaf\x27\x1c"sv, "a 7-Zip archive", unpack},
    Mark{"ustar"sv, "a tar archive", unpack, 257},
    Mark{"PAR1"sv, "a Parquet table", convert_text},
    Mark{"ARROW1"sv, "an Arrow table", convert_text},
    Mark{"\xff\xff\xff\xff\x10\0\0\0"sv, "an Arrow stream", convert_text},
    Mark{"Obj\1"sv, "an Avro table", convert_text},
    Mark{"SQLite format 3\0"sv, "an SQLite database", convert_text},
    Mark{"\x89HDF\r\n\x1a\n"sv, "an HDF5 file",
         "write its tokens as raw uint16, or its text with `espalier data pack`"},
    Mark{"GGUF"sv, "a model file (GGUF)", "give a file of tokens or text"},
    Mark{"\x7f"
         "ELF"sv,
         "a program", "give a file of tokens or text"},
    Mark{"%PDF-"sv, "a PDF document", convert_text},
    Mark{"\x89PNG\r\n"sv, "a picture", "give a file of tokens or text"},
    Mark{"\xff\xd8\xff"sv, "a picture", "give a file of tokens or text"},
    Mark{"\x80\4\x95"sv, "an object of Python's pickle", convert_array},
    Mark{"\x80\5\x95"sv, "an object of Python's pickle", convert_array},
    Mark{"\x80\2}q"sv, "an object of Python's pickle", convert_array},
    Mark{"\x80\2]q"sv, "an object of Python's pickle", convert_array},
    Mark{"\x80\2\x8a\x0al\xfc"sv, "an object of PyTorch", convert_array},
    Mark{"\xff\xfe\0\0"sv, "text in UTF-32", from_utf32},
    Mark{"\0\0\xfe\xff"sv, "text in UTF-32", from_utf32},
    Mark{"\xff\xfe"sv, "text in UTF-16", to_utf8},
    Mark{"\xfe\xff"sv, "text in UTF-16", to_utf8},
};
constexpr std::size_t longest_look = std::size_t{64} << 10;

// A header of JSON behind its length in eight bytes.
bool is_safetensors(std::string_view bytes) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length) + 2)
    return false;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length >= 2 && length < (std::uint64_t{1} << 32) && bytes.substr(sizeof(length), 2) == "{\""sv;
}

// No control characters, and bytes above 127 only as UTF-8 has them, the cut ones at both ends apart.
bool is_utf8_text(std::string_view bytes) {
  int following = 0;
  bool is_first = true;  // a piece may begin within a character
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80) {
      if (following == 0 && !is_first)
        return false;
      following -= following > 0 ? 1 : 0;
      continue;
    }
    is_first = false;
    if (following > 0 || byte == 0x7f || byte >= 0xf8 ||
        (byte < 0x20 && "\t\n\r\f\v"sv.find(c) == std::string_view::npos))
      return false;
    following = byte < 0x80 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  }
  return true;
}

// What the four 16-bit words of eight bytes are, over pieces of a file.
class WordShape {
 public:
  void add(std::string_view bytes) {
    is_text_ = is_text_ && is_utf8_text(bytes);
    for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
      std::uint16_t word = 0;
      std::memcpy(&word, bytes.data() + i, sizeof(word));
      const auto swapped = static_cast<std::uint16_t>(word << 8 | word >> 8);
      largest_[(i / 2) % 4] = std::max(largest_[(i / 2) % 4], word);
      largest_swapped_[i / 2 % 2] = std::max(largest_swapped_[i / 2 % 2], swapped);
      low_bytes_ |= word & 0xff;
      ++num_words_;
    }
  }

  std::string name() const {
    if (num_words_ < 16)
      return "";
    const auto both = [&](std::size_t a, std::size_t b) { return std::max(largest_[a], largest_[b]); };
    const std::uint16_t even = both(0, 2);
    const std::uint16_t odd = both(1, 3);
    if (even == 0 && odd == 0)
      return "nothing but zeros";
    if (odd == 0 && largest_[2] == 0)
      return "integers of 64 bits: three of four uint16 are 0";
    if (even == 0 && largest_[1] == 0)
      return "integers of 64 bits, high byte first: three of four uint16 are 0";
    if (odd == 0)
      return "integers of 32 bits: every second uint16 is 0";
    if (even == 0)
      return "integers of 32 bits, high byte first: every second uint16 is 0";
    // Vocabularies of 65536 to a million tokens.
    if (odd < 16 && even >= 4096)
      return fmt::format("integers of 32 bits: every second uint16 is at most {}", odd);
    if (largest_swapped_[0] < 16 && largest_swapped_[1] >= 4096)
      return fmt::format("integers of 32 bits, high byte first: every second uint16 is at most {}",
                         largest_swapped_[0]);
    if (low_bytes_ == 0)
      return "uint16 with the high byte first: every one is a multiple of 256";
    return is_text_ ? "text" : "";
  }

 private:
  std::array<std::uint16_t, 4> largest_{};
  std::array<std::uint16_t, 2> largest_swapped_{};  // of even and odd ones, with the high byte first
  unsigned low_bytes_ = 0;
  std::size_t num_words_ = 0;
  bool is_text_ = true;
};

}  // namespace

std::string first_bytes(const InputFile& file) {
  std::string bytes(std::min(file.size(), longest_look), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

std::optional<FileKind> marked_kind(std::string_view first_bytes) {
  for (const Mark& mark : marks)
    if (first_bytes.size() > mark.offset && first_bytes.substr(mark.offset).starts_with(mark.bytes))
      return FileKind{mark.name, mark.todo};
  if (is_safetensors(first_bytes))
    return FileKind{"a model file (safetensors)", "give a file of tokens or text"};
  return std::nullopt;
}

std::optional<FileKind> marked_up_kind(std::string_view first_bytes) {
  const std::size_t begin = first_bytes.find_first_not_of("\xef\xbb\xbf \t\r\n");
  const std::string_view text = first_bytes.substr(std::min(begin, first_bytes.size()));
  const std::string_view line = text.substr(0, text.find('\n'));
  if (text.starts_with('{') || text.starts_with('[')) {
    const char* const extract = "write only its texts: jq -r .text IN >OUT, with the name of your field";
    const bool is_whole = first_bytes.size() < longest_look;
    if (line.size() > 2 && is_json(line))
      return FileKind{"JSON lines", extract};
    const std::size_t second = text.find_first_not_of(" \t\r\n", 1);
    const char next = second < text.size() ? text[second] : '\0';
    const bool begins_like_json = next == '"' || (text.starts_with('[') && next == '{');
    if (is_whole ? is_json(text) : begins_like_json)
      return FileKind{"JSON", extract};
  }
  for (const std::string_view mark : {"<!DOCTYPE"sv, "<!doctype"sv, "<html"sv, "<HTML"sv, "<?xml"sv, "<mediawiki"sv})
    if (text.starts_with(mark))
      return FileKind{mark.starts_with("<?") || mark.starts_with("<m") ? "XML" : "HTML", "write only its text"};
  return std::nullopt;
}

std::optional<FileKind> kind_beside_uint16(const InputFile& file) {
  constexpr std::size_t num_pieces = 64;
  constexpr std::size_t piece_bytes = 4096;
  WordShape shape;
  std::string piece;
  for (std::size_t i = 0; i < num_pieces; ++i) {
    const std::size_t begin = std::max(file.size() / num_pieces * i / 8 * 8, i * piece_bytes);
    if (begin >= file.size())
      break;
    piece.resize(std::min(piece_bytes, file.size() - begin));
    file.read_at(begin, piece.data(), piece.size());
    shape.add(piece);
  }
  const std::string name = shape.name();
  if (name.empty())
    return std::nullopt;
  return FileKind{name, name == "text" ? "pack it: espalier data pack --output train.bin TEXT" : convert_array};
}

}  // namespace espalier
