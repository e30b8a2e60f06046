// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A text of PTX: its variables, and where its functions are.
#include <cctype>
#include <cstdlib>

#include "tests/support/fake_cuda/ptx_program.hpp"

namespace fake_cuda::ptx {
namespace {

std::size_t size_of_type(std::string_view type) {
  const std::size_t digits = type.find_first_of("0123456789");
  return digits == std::string_view::npos ? 1 : std::strtoul(std::string(type.substr(digits)).c_str(), nullptr, 10) / 8;
}

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}

// The end of what begins at `from`: behind its semicolon, or behind the brace that closes its body. A body may follow a
// list in parentheses; a declaration ahead has none.
std::size_t end_of_item(std::string_view text, std::size_t from) {
  int depth = 0;
  for (std::size_t i = from; i < text.size(); ++i) {
    if (text[i] == '{')
      ++depth;
    if (text[i] == '}' && --depth == 0 && text.substr(i + 1, 1) != ";")
      return i + 1;
    if (text[i] == ';' && depth == 0)
      return i + 1;
  }
  return text.size();
}

// The name of ".entry name(" and of ".func (results) name(".
std::string_view name_of_function(std::string_view item) {
  std::string_view rest = trimmed(item.substr(item.find_first_of(" \t\n(")));
  if (rest.substr(0, 1) == "(")
    rest = trimmed(rest.substr(rest.find(')') + 1));
  return word_at(rest);
}

}  // namespace

std::string joined(Parts::const_iterator first, Parts::const_iterator last) {
  std::string text;
  for (; first != last; ++first)
    text += (text.empty() ? "" : ".") + std::string(*first);
  return text;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return text;
}

std::string_view word_at(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && is_word(text[length]))
    ++length;
  return text.substr(0, length);
}

std::uint64_t number_of(std::string_view text) {
  const std::string copy(text);
  const bool is_float = text.substr(0, 2) == "0f" || text.substr(0, 2) == "0F" || text.substr(0, 2) == "0d" ||
                        text.substr(0, 2) == "0D";  // the bits
  if (is_float)
    return std::strtoull(copy.c_str() + 2, nullptr, 16);
  return copy[0] == '-' ? static_cast<std::uint64_t>(std::strtoll(copy.c_str(), nullptr, 0))
                        : std::strtoull(copy.c_str(), nullptr, 0);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(trimmed(text.substr(0, at)));
    if (at == std::string_view::npos)
      return parts;
    text.remove_prefix(at + 1);
  }
}

std::pair<std::string, Module::Variable> parse_variable(std::string_view text) {
  Module::Variable variable;
  std::size_t element = 1;
  text = trimmed(text);
  while (text.substr(0, 1) == ".") {
    const std::string_view word = word_at(text);
    text = trimmed(text.substr(word.size()));
    if (word == ".align") {
      const std::string_view number = word_at(text);
      variable.alignment = std::strtoul(std::string(number).c_str(), nullptr, 10);
      text = trimmed(text.substr(number.size()));
    } else {
      element = size_of_type(word);
      variable.alignment = std::max(variable.alignment, element);
    }
  }
  const std::string name(word_at(text));
  text = trimmed(text.substr(name.size()));
  variable.bytes = element;
  if (text.substr(0, 1) == "[") {
    const std::size_t close = text.find(']');
    const std::string_view number = trimmed(text.substr(1, close - 1));
    variable.is_sized = !number.empty();
    variable.bytes = element * std::strtoul(std::string(number).c_str(), nullptr, 10);
    text = trimmed(text.substr(close + 1));
  }
  if (text.substr(0, 1) == "=") {
    std::string_view list = trimmed(text.substr(1));
    if (list.substr(0, 1) == "{")
      list = list.substr(1, list.find('}') - 1);
    for (const std::string_view number : split(list, ','))
      for (std::size_t byte = 0; byte < element; ++byte)
        variable.initial.push_back(static_cast<char>(number_of(number) >> (8 * byte)));
  }
  return {name, variable};
}

Module::Module(const void* binary, std::string text, VariableAddress address)
    : binary_(binary), text_(std::move(text)), address_(address) {
  const std::string_view all = text_;
  for (std::size_t at = all.find(".address_size"); at < all.size();) {
    at = all.find("\n.", at);
    if (at == std::string_view::npos)
      break;
    ++at;
    std::string_view word = word_at(all.substr(at));
    while (word == ".visible" || word == ".extern" || word == ".weak" || word == ".common") {
      at = all.find('.', at + 1);
      word = word_at(all.substr(at));
    }
    const std::size_t end = end_of_item(all, at);
    const std::string_view item = all.substr(at, end - at);
    if (word == ".entry" || word == ".func") {
      if (item.back() == '}')
        places_[std::string(name_of_function(item))] = {at, end - at};
    } else if (word == ".shared" || word == ".const" || word == ".global") {
      auto [name, variable] = parse_variable(item.substr(word.size(), item.size() - word.size() - 1));
      variable.space = word == ".shared" ? Space::shared : Space::global;
      variables_[name] = variable;
    }
    at = end - 1;
  }
}

const Function* Module::function(const std::string& name) {
  const auto place = places_.find(name);
  if (place == places_.end())
    return nullptr;
  std::unique_ptr<Function>& function = functions_[name];
  if (!function)
    function = parse_function(*this, std::string_view(text_).substr(place->second.first, place->second.second));
  return function.get();
}

const Module::Variable* Module::variable(const std::string& name) const {
  const auto found = variables_.find(name);
  return found == variables_.end() ? nullptr : &found->second;
}

}  // namespace fake_cuda::ptx
