// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/file_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/json_reader.hpp"
#include "io/pack/word_shape.hpp"
#include "io/strings.hpp"

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
constexpr const char* no_text = "give a file of tokens or text";
constexpr const char* convert_array = "write its tokens as raw uint16: array.astype('uint16').tofile('train.bin')";
constexpr const char* convert_text = "write its text to plain files and use `espalier data pack`";
constexpr const char* to_utf8 = "make it UTF-8: iconv -f UTF-16 -t UTF-8 IN >OUT";
constexpr const char* from_utf32 = "make it UTF-8: iconv -f UTF-32 -t UTF-8 IN >OUT";

constexpr std::array marks = {
    Mark{"ESPTOKEN"sv, "a token file of Espalier", "give the text that it was made from"},
    Mark{"MMIDIDX\0\0"sv, "the index of a Megatron data set",
         "name it PREFIX.idx, with its tokens beside it in PREFIX.bin, and train on PREFIX"},
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
  constexpr int most_lines_read = 20;
  int lines = 0;
  int objects = 0;
  for (; lines < most_lines_read && !text.empty(); ++lines) {
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
      return FileKind{mark.name, mark.todo};
  if (is_riff(first_bytes))
    return FileKind{"a sound, film or picture (RIFF)", no_text};
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
