// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/value_range.hpp"

// Fields of files that somebody may have damaged or forged, read as the type and within the range that their reader
// needs. An error names the key and the value.

namespace espalier {

inline constexpr IntegerRange count_range{0, Index{1} << 50};  ///< of steps, samples, tokens, bytes: sums of a few fit
/// Of steps and samples. Times the largest batch (2^24) they fit into an Index.
inline constexpr IntegerRange steps_range{0, Index{1} << 38};
inline constexpr FloatRange seconds_range{.min = 0, .max = 1e12};
inline constexpr std::size_t longest_text = 4096;  ///< of a name or a sentence
inline constexpr std::size_t longest_list = std::size_t{1} << 20;

/// A value in a message: `7`, `a list of 12`.
std::string shown_json(const nlohmann::json& value);

/// A value that is not what its reader needs. what() is `got, wanted ...`.
class FieldError : public std::runtime_error {
 public:
  FieldError(const std::string& got, const std::string& wanted)
      : std::runtime_error(got + ", wanted " + wanted), got_(got), wanted_(wanted) {}
  const std::string& got() const { return got_; }        ///< `"key" is VALUE`
  const std::string& wanted() const { return wanted_; }  ///< "an integer, at least 1"

 private:
  std::string got_, wanted_;
};

/// @throws FieldError
[[noreturn]] void refuse_field(const char* key, const nlohmann::json& value, const std::string& wanted);

/// A value of these types. `key` is for the message. @throws as refuse_field()
Index integer_from(const nlohmann::json& value, const char* key, IntegerRange range);
double float_from(const nlohmann::json& value, const char* key, FloatRange range);  ///< finite
bool boolean_from(const nlohmann::json& value, const char* key);
const std::string& text_from(const nlohmann::json& value, const char* key, std::size_t most);

/// `json[key]`. @throws std::runtime_error where there is none
const nlohmann::json& any_field(const nlohmann::json& json, const char* key);

/// @throws std::runtime_error where it is something else
void require_object(const nlohmann::json& json);

/// `json[key]`, an object. @throws std::runtime_error
const nlohmann::json& object_field(const nlohmann::json& json, const char* key);

/// The same, or an empty one where there is none.
const nlohmann::json& object_field_or_empty(const nlohmann::json& json, const char* key);

/// `json[key]`, a list of so many values at most. @throws std::runtime_error
const nlohmann::json& list_field(const nlohmann::json& json, const char* key, std::size_t most = longest_list);

/// A finite number, or the name of one that is not (io/json_fields.hpp). @throws std::runtime_error
double number_field(const nlohmann::json& json, const char* key);

/// A value as a T within its range. @throws as refuse_field()
template <std::integral T>
T value_from(const nlohmann::json& value, const char* key, IntegerRange range = {}) {
  if constexpr (std::same_as<T, bool>) {
    return boolean_from(value, key);
  } else {
    range.min =
        std::max(range.min, std::is_unsigned_v<T> ? Index{0} : static_cast<Index>(std::numeric_limits<T>::min()));
    if constexpr (sizeof(T) < sizeof(Index))
      range.max = std::min(range.max, static_cast<Index>(std::numeric_limits<T>::max()));
    return static_cast<T>(integer_from(value, key, range));
  }
}

template <std::floating_point T>
T value_from(const nlohmann::json& value, const char* key, FloatRange range = {}) {
  return static_cast<T>(float_from(value, key, range));
}

template <std::same_as<std::string> T>
T value_from(const nlohmann::json& value, const char* key, std::size_t most = longest_text) {
  return text_from(value, key, most);
}

/// `json[key]` as a T within its range: an IntegerRange, a FloatRange, the longest text. @throws std::runtime_error
template <class T, class... Range>
T field(const nlohmann::json& json, const char* key, Range... range) {
  return value_from<T>(any_field(json, key), key, range...);
}

/// The same, or `otherwise` where there is none.
template <class T, class... Range>
T field_or(const nlohmann::json& json, const char* key, T otherwise, Range... range) {
  return json.contains(key) ? field<T>(json, key, range...) : std::move(otherwise);
}

/// The values of a list, each within the range. @throws std::runtime_error
template <class T, class... Range>
std::vector<T> values_field(const nlohmann::json& json, const char* key, Range... range) {
  std::vector<T> values;
  for (const nlohmann::json& value : list_field(json, key))
    values.push_back(value_from<T>(value, key, range...));
  return values;
}

/// JSON knows no infinity and no NaN: in our files these are the strings "inf", "-inf" and "nan".
void name_non_finite(nlohmann::ordered_json& value);

/// The number that such a string names; none for anything else.
std::optional<double> named_number(const nlohmann::json& value);

/// The choice whose word the field is. @throws as refuse_field()
template <class Choice, std::size_t N>
Choice choice_field(const nlohmann::json& json, const char* key, const std::array<Choice, N>& choices) {
  const auto word = field<std::string>(json, key);
  std::string words;
  for (const Choice choice : choices) {
    if (word == to_string(choice))
      return choice;
    words += (words.empty() ? "one of " : ", ") + std::string(to_string(choice));
  }
  refuse_field(key, json.at(key), words);
}

}  // namespace espalier
