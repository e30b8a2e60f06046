// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/file_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "io/json_reader.hpp"
#include "io/strings.hpp"
#include "io/tokens/megatron_index.hpp"
#include "io/tokens/token_file.hpp"

namespace espalier {
namespace {

// What bytes are that were taken for uint16 tokens, by the shape of their 16-bit words.
class WordShape {
 public:
  // A piece of the file that begins at a multiple of eight bytes.
  void add(std::string_view bytes);

  // "text", "integers of 32 bits: every second uint16 is 0", "floating-point numbers of 32 bits"; empty: they may be
  // tokens.
  std::string name() const;

 private:
  // The words at one of the four places of eight bytes.
  struct Column {
    std::uint16_t largest = 0;             // but for 0xffff, half of a negative integer
    std::uint16_t min_magnitude = 0xffff;  // without the highest bit, of those that are not 0
    std::uint16_t largest_magnitude = 0;
  };
  // All words, read in one order of their two bytes.
  struct Columns {
    void add(std::size_t index, std::uint16_t word);
    bool lie_between(std::size_t first_column, std::size_t step, unsigned least, unsigned most) const;
    std::uint16_t largest(std::size_t a, std::size_t b) const { return std::max(at[a].largest, at[b].largest); }

    std::array<Column, 4> at{};
    std::size_t num_high_bits = 0;   // words with the highest bit
    std::size_t num_subnormals = 0;  // words that as fp16 are smaller than its normal numbers
  };
  std::string float_name(const Columns& columns, std::size_t low, std::size_t high) const;
  std::string integer_name() const;
  bool is_text() const;
  bool are_bytes() const;

  Columns low_first_;  // the order of this program's machines
  Columns high_first_;
  unsigned low_bytes_ = 0;
  std::uint16_t first_word_ = 0;
  bool all_are_first_ = true;
  bool has_ones_ = false;           // 0xffff: of padding and of negative integers
  std::size_t num_high_bytes_ = 0;  // words of 256 or more
  std::size_t num_words_ = 0;
  std::size_t num_bytes_ = 0;
  std::size_t num_controls_ = 0;  // control characters but tabs and ends of lines
};

// Fewer words than these may have any shape by chance.
constexpr std::size_t min_words = 16;
constexpr std::size_t min_words_for_floats = 256;

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == 0x7f || (byte < 0x20 && std::string_view("\t\n\r\f\v").find(c) == std::string_view::npos);
}

void WordShape::add(std::string_view bytes) {
  num_bytes_ += bytes.size();
  num_controls_ += static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), is_control));
  for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    std::uint16_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    const auto swapped = static_cast<std::uint16_t>(word << 8 | word >> 8);
    low_first_.add(i / 2, word);
    high_first_.add(i / 2, swapped);
    has_ones_ = has_ones_ || word == 0xffff;
    first_word_ = num_words_ == 0 ? word : first_word_;
    all_are_first_ = all_are_first_ && word == first_word_;
    num_high_bytes_ += word >= 0x100 ? 1 : 0;
    low_bytes_ |= word & 0xff;
    ++num_words_;
  }
}

void WordShape::Columns::add(std::size_t index, std::uint16_t word) {
  const auto magnitude = static_cast<std::uint16_t>(word & 0x7fff);
  Column& column = at[index % 4];
  if (word != 0xffff)
    column.largest = std::max(column.largest, word);
  column.largest_magnitude = std::max(column.largest_magnitude, magnitude);
  if (magnitude > 0)
    column.min_magnitude = std::min(column.min_magnitude, magnitude);
  num_high_bits += word != magnitude ? 1 : 0;
  num_subnormals += magnitude > 0 && magnitude < 0x400 ? 1 : 0;
}

// Of tokens one byte in ten or so is a control character, of text next to none.
bool WordShape::is_text() const { return num_controls_ * 50 <= num_bytes_; }

// The sign, the exponent and the first bits of the fraction lie between these, in every `step`th column.
bool WordShape::Columns::lie_between(std::size_t first_column, std::size_t step, unsigned least, unsigned most) const {
  for (std::size_t c = first_column; c < at.size(); c += step)
    if (at[c].largest_magnitude > most || at[c].min_magnitude < least)
      return false;
  return true;
}

// Two of them in each word: both are below 128, which of uint16 tokens above 255 half are not.
bool WordShape::are_bytes() const {
  return num_words_ >= min_words_for_floats && (low_bytes_ & 0x80U) == 0 && 2 * num_high_bytes_ > num_words_;
}

// Of magnitudes between about 1e-10 and 1e7, of both signs. No vocabulary leaves out so many of its entries; that of
// fp16 would be left out at its beginning, where the frequent tokens are. `high` is the column of the exponent of fp64,
// `low` that of its lowest bits: the order of the bytes of a number is also that of its words.
std::string WordShape::float_name(const Columns& columns, std::size_t low, std::size_t high) const {
  if (num_words_ < min_words_for_floats)
    return "";
  const bool both_signs = columns.num_high_bits * 10 > num_words_ && columns.num_high_bits * 10 < num_words_ * 9;
  if (both_signs && columns.lie_between(0, 1, 0x2f00, 0x4b00))
    return "bf16";
  if (both_signs && columns.num_subnormals * 50 < num_words_ && columns.lie_between(0, 1, 1, 0x5800) &&
      columns.at[0].largest_magnitude > 0x2000)
    return "fp16";
  if (columns.at[low].largest <= 0x4b00)
    return "";
  if (columns.lie_between(high % 2, 2, 0x2f00, 0x4b00))
    return "fp32";
  return columns.lie_between(high, 4, 0x3d00, 0x4200) ? "fp64" : "";
}

// Negative ones, as labels of padding are, have 65535 where the others have 0.
std::string WordShape::integer_name() const {
  const std::uint16_t even = low_first_.largest(0, 2);
  const std::uint16_t odd = low_first_.largest(1, 3);
  const char* const high_bits = has_ones_ ? "0 or 65535" : "0";
  if (odd == 0 && low_first_.at[2].largest == 0)
    return fmt::format("integers of 64 bits: three of four uint16 are {}", high_bits);
  if (even == 0 && low_first_.at[1].largest == 0)
    return fmt::format("integers of 64 bits, high byte first: three of four uint16 are {}", high_bits);
  if (odd == 0)
    return fmt::format("integers of 32 bits: every second uint16 is {}", high_bits);
  if (even == 0)
    return fmt::format("integers of 32 bits, high byte first: every second uint16 is {}", high_bits);
  // Vocabularies of 65536 to a million tokens.
  const char* const or_ones = has_ones_ ? " or 65535" : "";
  if (odd < 16 && even >= 4096)
    return fmt::format("integers of 32 bits: every second uint16 is at most {}{}", odd, or_ones);
  if (const std::uint16_t first = high_first_.largest(0, 2); first < 16 && high_first_.largest(1, 3) >= 4096)
    return fmt::format("integers of 32 bits, high byte first: every second uint16 is at most {}{}", first, or_ones);
  return "";
}

std::string WordShape::name() const {
  if (num_words_ < min_words)
    return "";
  if (all_are_first_ && (first_word_ == 0 || first_word_ == 0xffff))
    return first_word_ == 0 ? "nothing but zeros" : "nothing but 65535";
  if (low_first_.largest(0, 1) == 0 && low_first_.largest(2, 3) == 0)
    return "nothing but 0 and 65535";
  if (std::string integers = integer_name(); !integers.empty())
    return integers;
  if (low_bytes_ == 0)
    return "uint16 with the high byte first: every one is a multiple of 256";
  if (is_text())
    return "text";
  if (are_bytes())
    return "bytes (uint8): two in each uint16, all below 128";
  if (const std::string type = float_name(low_first_, 0, 3); !type.empty())
    return fmt::format("floating-point numbers ({})", type);
  const std::string type = float_name(high_first_, 3, 0);
  return type.empty() ? "" : fmt::format("floating-point numbers ({}), high byte first", type);
}

using namespace std::string_view_literals;

struct Mark {
  std::string_view bytes;
  std::string_view name;
  const char* todo;
  std::size_t offset = 0;
};

constexpr const char* unpack = "unpack it first";
constexpr const char* no_text = "give a file of tokens or text";
constexpr const char* convert_array = "write its tokens as raw uint16: array.astype('uint16').tofile('train.bin')";
constexpr const char* convert_text = "write its text to plain files and use `espalier data pack`";
constexpr const char* to_utf8 = "make it UTF-8: iconv -f UTF-16 -t UTF-8 IN >OUT";
constexpr const char* from_utf32 = "make it UTF-8: iconv -f UTF-32 -t UTF-8 IN >OUT";

constexpr std::array marks = {
    Mark{token_file_mark.begin, "a token file of Espalier", "give the text that it was made from"},
    Mark{megatron_index_mark.begin, megatron_index_mark.kind,
         "name it PREFIX.idx, put its tokens into PREFIX.bin in the same directory, and train on PREFIX"},
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
    Mark{"GGUF"sv, "a model file (GGUF)", no_text},
    Mark{"\x7f"
         "ELF"sv,
         "a program", no_text},
    Mark{"%PDF-"sv, "a PDF document", convert_text},
    Mark{"\x89PNG\r\n"sv, "a picture", no_text},
    Mark{"\xff\xd8\xff"sv, "a picture", no_text},
    Mark{"GIF87a"sv, "a picture", no_text},
    Mark{"GIF89a"sv, "a picture", no_text},
    Mark{"II*\0"sv, "a picture", no_text},
    Mark{"MM\0*"sv, "a picture", no_text},
    Mark{"ID3\3"sv, "a sound (MP3)", no_text},
    Mark{"ID3\4"sv, "a sound (MP3)", no_text},
    Mark{"OggS"sv, "a sound or film (Ogg)", no_text},
    Mark{"fLaC"sv, "a sound (FLAC)", no_text},
    Mark{"ftyp"sv, "a film or sound (MP4)", no_text, 4},
    Mark{"\x1a\x45\xdf\xa3"sv, "a film (Matroska, WebM)", no_text},
    Mark{"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, "a document of Microsoft Office", convert_text},
    Mark{"Rar!\x1a\7"sv, "a RAR archive", unpack},
    Mark{"\0asm"sv, "a program", no_text},
    Mark{"\xca\xfe\xba\xbe"sv, "a program", no_text},
    Mark{"\xcf\xfa\xed\xfe"sv, "a program", no_text},
    Mark{"CDF\1"sv, "a NetCDF file", no_text},
    Mark{"CDF\2"sv, "a NetCDF file", no_text},
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

// Sounds, films and pictures of Microsoft's.
bool is_riff(std::string_view bytes) {
  const std::string_view form = bytes.size() < 12 ? ""sv : bytes.substr(8, 4);
  return bytes.starts_with("RIFF"sv) && (form == "WAVE"sv || form == "AVI "sv || form == "WEBP"sv);
}

// The first line is an object or list, or most of the first lines are: a header may stand in front of them.
bool are_json_lines(std::string_view text) {
  constexpr int max_lines_read = 20;
  int lines = 0;
  int objects = 0;
  for (; lines < max_lines_read && !text.empty(); ++lines) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const bool may_be = line.size() > 2 && (line.front() == '{' || line.front() == '[');
    objects += may_be && is_json(line) ? 1 : 0;
    if (lines == 0 && objects == 1)
      return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return objects >= 2 && 2 * objects >= lines;
}

}  // namespace

std::string first_bytes(const InputFile& file) {
  std::string bytes(std::min(file.size(), longest_look), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

std::optional<FileKind> marked_kind(std::string_view first_bytes) {
  for (const Mark& mark : marks)
    if (first_bytes.size() > mark.offset && first_bytes.substr(mark.offset).starts_with(mark.bytes))
      return FileKind{std::string(mark.name), mark.todo};
  if (is_riff(first_bytes))
    return FileKind{"audio, video or an image (RIFF)", no_text};
  if (is_safetensors(first_bytes))
    return FileKind{"a model file (safetensors)", no_text};
  return std::nullopt;
}

std::optional<FileKind> marked_up_kind(std::string_view first_bytes) {
  const std::size_t begin = first_bytes.find_first_not_of(std::string("\xef\xbb\xbf").append(json_white_space));
  const std::string_view text = first_bytes.substr(std::min(begin, first_bytes.size()));
  const char* const extract = "write only its texts: jq -r .text IN >OUT, with the name of your field";
  if (are_json_lines(text))
    return FileKind{"JSON lines", "name the key of the text: --key text"};
  if (text.starts_with('{') || text.starts_with('[')) {
    const bool is_whole = first_bytes.size() < longest_look;
    const std::size_t second = text.find_first_not_of(json_white_space, 1);
    const char next = second < text.size() ? text[second] : '\0';
    const bool begins_like_json = next == '"' || (text.starts_with('[') && next == '{');
    if (is_whole ? is_json(text) : begins_like_json)
      return FileKind{"JSON", extract};
  }
  for (const auto& [mark, name] : {std::pair("{\\rtf"sv, "RTF"), {"%!PS"sv, "PostScript"}})
    if (text.starts_with(mark))
      return FileKind{name, "write only its text"};
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
