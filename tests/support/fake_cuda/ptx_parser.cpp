// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The text of a function, statement by statement.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "tests/support/fake_cuda/ptx_program.hpp"

namespace fake_cuda::ptx {
namespace {

constexpr std::pair<std::string_view, Special> special_names[] = {
    {"%tid.x", Special::tid_x},       {"%tid.y", Special::tid_y},
    {"%tid.z", Special::tid_z},       {"%ntid.x", Special::ntid_x},
    {"%ntid.y", Special::ntid_y},     {"%ntid.z", Special::ntid_z},
    {"%ctaid.x", Special::ctaid_x},   {"%ctaid.y", Special::ctaid_y},
    {"%ctaid.z", Special::ctaid_z},   {"%nctaid.x", Special::nctaid_x},
    {"%nctaid.y", Special::nctaid_y}, {"%nctaid.z", Special::nctaid_z},
    {"%clock", Special::clock},       {"%laneid", Special::laneid},
    {"%warpid", Special::warpid},     {"%lanemask_lt", Special::lanemask_lt},
    {"%clock64", Special::clock},     {"%globaltimer", Special::clock},
};

std::size_t up(std::size_t number, std::size_t step) { return (number + step - 1) / step * step; }

class Parser {
 public:
  Parser(const Module& module, std::string_view text) : module_(module), text_(text) {}

  std::unique_ptr<Function> parse() {
    scopes_.emplace_back();
    parse_head();
    parse_body();
    for (const auto& [instruction, label] : branches_)
      function_->code[instruction].target = labels_.at(std::string(label));
    Instruction end;
    end.flow = Flow::end;
    function_->code.push_back(end);
    // What the launch adds lies behind all that has a size.
    function_->shared_bytes = up(function_->shared_bytes, 16);
    for (const int r : behind_shared_)
      function_->constants.emplace_back(r, function_->shared_bytes);
    return std::move(function_);
  }

 private:
  struct Symbol {
    int first = 0, count = -1;  // registers name0, name1, ...; -1: one, of this very name
    bool is_register = true;
    Space space = Space::generic;
  };

  int new_registers(int count) {
    function_->num_registers += count;
    return function_->num_registers - count;
  }
  int constant(std::uint64_t value) {
    const auto [at, is_new] = constants_.emplace(value, function_->num_registers);
    if (is_new)
      function_->constants.emplace_back(new_registers(1), value);
    return at->second;
  }
  int special(Special which) {
    const auto [at, is_new] = specials_.emplace(which, function_->num_registers);
    if (is_new)
      function_->specials.emplace_back(new_registers(1), which);
    return at->second;
  }

  // ---- Declarations ----

  void parse_head() {
    function_->is_kernel = word_at(text_) == ".entry";
    const std::size_t body = text_.find('{');
    std::string_view head = text_.substr(0, body);
    constexpr std::string_view threads_name = ".maxntid";
    if (const std::size_t at = head.find(threads_name); at != std::string_view::npos) {
      function_->most_threads = 1;
      for (const std::string_view number : split(head.substr(at + threads_name.size()), ','))
        function_->most_threads *= number_of(number);
    }
    constexpr std::string_view blocks_name = ".minnctapersm";
    if (const std::size_t at = head.find(blocks_name); at != std::string_view::npos)
      function_->least_blocks = std::max<std::size_t>(1, number_of(trimmed(head.substr(at + blocks_name.size()))));
    std::vector<std::string_view> lists;  // in parentheses
    while (head.find('(') != std::string_view::npos) {
      const std::size_t open = head.find('('), close = head.find(')');
      lists.push_back(trimmed(head.substr(open + 1, close - open - 1)));
      head.remove_prefix(close + 1);
    }
    if (lists.size() == 2)
      function_->results = declare_parameters(lists.front());
    if (!lists.empty())
      function_->parameters = declare_parameters(lists.back());
    at_ = body + 1;
  }

  std::vector<Parameter> declare_parameters(std::string_view list) {
    std::vector<Parameter> parameters;
    if (list.empty())
      return parameters;
    for (const std::string_view declaration : split(list, ',')) {
      const auto [name, variable] = parse_variable(declaration.substr(std::strlen(".param")));
      std::size_t& end = function_->is_kernel ? function_->parameter_bytes : function_->local_bytes;
      const std::size_t offset = up(end, variable.alignment);
      end = offset + variable.bytes;
      parameters.push_back({offset, variable.bytes});
      declare_address(name, offset, function_->is_kernel ? Space::parameter : Space::local);
    }
    return parameters;
  }

  void declare_address(const std::string& name, std::uint64_t address, Space space) {
    const int r = space == Space::local ? new_registers(1) : constant(address);
    if (space == Space::local) {
      function_->local_addresses.emplace_back(r, address);
      local_offsets_[name] = address;
    }
    scopes_.back()[name] = {.first = r, .is_register = false, .space = space};
  }

  void declare_registers(std::string_view list) {
    list = trimmed(list.substr(word_at(list).size()));  // the type
    for (const std::string_view name : split(list, ',')) {
      const std::size_t bracket = name.find('<');
      if (bracket == std::string_view::npos) {
        scopes_.back()[std::string(name)] = {.first = new_registers(1)};
        continue;
      }
      const int count = std::atoi(std::string(name.substr(bracket + 1)).c_str());
      scopes_.back()[std::string(name.substr(0, bracket))] = {.first = new_registers(count), .count = count};
    }
  }

  void declare_local(std::string_view declaration) {
    const auto [name, variable] = parse_variable(declaration);
    const std::size_t offset = up(function_->local_bytes, variable.alignment);
    function_->local_bytes = offset + variable.bytes;
    declare_address(name, offset, Space::local);
  }

  void declare_shared(const std::string& name, const Module::Variable& variable) {
    if (!variable.is_sized) {
      const int r = new_registers(1);
      behind_shared_.push_back(r);
      scopes_.front()[name] = {.first = r, .is_register = false, .space = Space::shared};
      return;
    }
    const std::size_t offset = up(function_->shared_bytes, variable.alignment);
    function_->shared_bytes = offset + variable.bytes;
    scopes_.front()[name] = {.first = constant(offset), .is_register = false, .space = Space::shared};
  }

  // ---- Names ----

  const Symbol* find(const std::string& name) {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    const std::string prefix = name.substr(0, digits);
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end() && found->second.count < 0)
        return &found->second;
      const auto range = scope->find(prefix);
      if (digits < name.size() && range != scope->end() && std::atoi(name.c_str() + digits) < range->second.count) {
        found_ = {.first = range->second.first + std::atoi(name.c_str() + digits)};
        return &found_;
      }
    }
    const Module::Variable* const variable = module_.variable(name);
    if (variable == nullptr)
      return nullptr;
    if (variable->space == Space::shared)
      declare_shared(name, *variable);
    else
      scopes_.front()[name] = {
          .first = constant(module_.address_of(name, *variable)), .is_register = false, .space = Space::global};
    return find(name);
  }

  // A register, a number or a name; -1: not known.
  int operand(std::string_view text, Space* space = nullptr) {
    if (text.empty())
      return -1;
    for (const auto& [name, which] : special_names)
      if (text == name)
        return special(which);
    if (text == "_")
      return new_registers(1);
    if (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-')
      return constant(number_of(text));
    const Symbol* const symbol = find(std::string(text));
    if (symbol == nullptr)
      return -1;
    if (space != nullptr && !symbol->is_register)
      *space = symbol->space;
    return symbol->first;
  }

  // ---- Statements ----

  void parse_body() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (std::isspace(static_cast<unsigned char>(c)) || c == ';') {
        ++at_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '{') {
        scopes_.emplace_back();
        ++at_;
      } else if (c == '}') {
        scopes_.pop_back();
        ++at_;
      } else if (const std::string_view word = word_at(text_.substr(at_));
                 !word.empty() && text_.substr(at_ + word.size(), 1) == ":") {
        labels_[std::string(word)] = static_cast<int>(function_->code.size());  // nvcc gives no name twice
        at_ += word.size() + 1;
      } else {
        const std::size_t end = std::min(text_.find(';', at_), text_.size());
        parse_statement(trimmed(text_.substr(at_, end - at_)));
        at_ = end + 1;
      }
    }
  }

  void parse_statement(std::string_view statement) {
    const std::string_view word = word_at(statement);
    const std::string_view rest = trimmed(statement.substr(word.size()));
    if (word == ".reg") {
      declare_registers(rest);
    } else if (word == ".local" || word == ".param") {
      declare_local(rest);
    } else if (word == ".shared") {
      const auto [name, variable] = parse_variable(rest);
      declare_shared(name, variable);
    } else if (word != ".pragma" && word != ".loc") {
      parse_instruction(statement);
    }
  }

  void parse_instruction(std::string_view text) {
    Instruction instruction;
    instruction.text = text;
    if (text[0] == '@') {
      instruction.guard_is_negated = text[1] == '!';
      const std::string_view predicate = word_at(text.substr(instruction.guard_is_negated ? 2 : 1));
      instruction.guard = operand(predicate);
      text = trimmed(text.substr(predicate.size() + (instruction.guard_is_negated ? 2 : 1)));
    }
    std::string_view opcode = text.substr(0, text.find_first_of(" \t\n"));
    const std::string_view rest = trimmed(text.substr(opcode.size()));
    const Parts parts = split(opcode, '.');
    if (parts[0] == "bra") {
      instruction.flow = Flow::branch;
      branches_.emplace_back(function_->code.size(), rest);
    } else if (parts[0] == "ret" || parts[0] == "exit") {
      instruction.flow = Flow::end;
    } else if (parts[0] == "call") {
      parse_call(rest, instruction);
    } else if (opcode == "bar.sync" && rest == "0") {
      instruction.flow = Flow::block_barrier;
    } else {
      if (parse_operands(rest, instruction) && !decode(parts, instruction))
        instruction.execute = nullptr;
      if (std::find(parts.begin(), parts.end(), "sync") != parts.end())
        instruction.members = std::find(parts.begin(), parts.end(), "aligned") != parts.end()
                                  ? constant(all_lanes)
                                  : instruction.operands.back();
    }
    function_->code.push_back(std::move(instruction));
  }

  static bool decode(const Parts& parts, Instruction& instruction) {
    return decode_memory(parts, instruction) || decode_collective(parts, instruction) ||
           decode_conversion(parts, instruction) || decode_arithmetic(parts, instruction);
  }

  // "{%r1, %r2}, [%rd1+8], 3"; false: with something that is not known.
  bool parse_operands(std::string_view text, Instruction& instruction) {
    bool is_first = true;
    while (!text.empty()) {
      const char open = text[0];
      std::size_t end = text.find(open == '{' ? '}' : open == '[' ? ']' : ',');
      if (end == std::string_view::npos)
        end = text.size();
      const bool is_enclosed = open == '{' || open == '[';
      const std::string_view inside = is_enclosed ? text.substr(1, end - 1) : trimmed(text.substr(0, end));
      if (open == '[') {
        if (!parse_address(inside, instruction))
          return false;
      } else {
        for (const std::string_view one : split(inside, open == '{' ? ',' : '|')) {
          instruction.operands.push_back(operand(one));
          if (instruction.operands.back() < 0)
            return false;
        }
      }
      if (is_first)
        instruction.num_results = static_cast<int>(instruction.operands.size());
      is_first = false;
      text = trimmed(text.substr(is_enclosed ? std::min(end + 1, text.size()) : end));
      if (text.substr(0, 1) == ",")
        text = trimmed(text.substr(1));
    }
    return true;
  }

  bool parse_address(std::string_view text, Instruction& instruction) {
    const std::size_t plus = text.find('+');
    if (plus != std::string_view::npos)
      instruction.offset = static_cast<std::int64_t>(number_of(trimmed(text.substr(plus + 1))));
    instruction.operands.push_back(operand(trimmed(text.substr(0, plus)), &instruction.space));
    return instruction.operands.back() >= 0;
  }

  // "(result), name, (argument, argument)"
  void parse_call(std::string_view text, Instruction& instruction) {
    instruction.flow = Flow::call;
    std::vector<std::size_t>* list = &instruction.results;
    while (!text.empty()) {
      if (text[0] == '(') {
        const std::size_t close = text.find(')');
        for (const std::string_view name : split(text.substr(1, close - 1), ','))
          if (!name.empty())
            list->push_back(local_offsets_.at(std::string(name)));
        text = trimmed(text.substr(close + 1));
      } else {
        const std::string_view name = word_at(text);
        instruction.callee = std::string(name);
        list = &instruction.arguments;
        text = trimmed(text.substr(name.size()));
      }
      if (text.substr(0, 1) == ",")
        text = trimmed(text.substr(1));
    }
  }

  const Module& module_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::unique_ptr<Function> function_ = std::make_unique<Function>();
  std::vector<std::map<std::string, Symbol>> scopes_;
  Symbol found_;
  std::map<std::uint64_t, int> constants_;
  std::map<Special, int> specials_;
  std::map<std::string, std::size_t> local_offsets_;
  std::vector<int> behind_shared_;
  std::map<std::string, int> labels_;
  std::vector<std::pair<std::size_t, std::string_view>> branches_;
};

}  // namespace

std::unique_ptr<Function> parse_function(const Module& module, std::string_view text) {
  return Parser(module, text).parse();
}

}  // namespace fake_cuda::ptx
