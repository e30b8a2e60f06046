// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The device code that nvcc leaves in a program as text (PTX ISA 9.0), in a form that can be executed. Names are those
/// of the PTX manual.
namespace fake_cuda::ptx {

constexpr int warp_size = 32;
using Lanes = std::uint32_t;  ///< a bit a lane
constexpr Lanes all_lanes = 0xffffffffU;

/// A value a lane, in its low bytes; predicates are kept as Lanes. Constants and special registers such as
/// %tid.x are registers, too.
struct Register {
  std::array<std::uint64_t, warp_size> of;
};

enum class Space { generic, global, shared, local, parameter };

/// Where generic addresses of shared and of local memory begin; nothing else is there.
constexpr std::uint64_t shared_window = 0x7a00000000000000;
constexpr std::uint64_t local_window = 0x7b00000000000000;

class Warp;
struct Function;
struct Instruction;
using Execute = void (*)(Warp&, const Instruction&, Lanes);

enum class Flow { next, branch, end, block_barrier, call };

struct Instruction {
  Flow flow = Flow::next;
  Execute execute = nullptr;  ///< of Flow::next; null: not known
  std::vector<int> operands;  ///< registers, results first
  int num_results = 0;
  int guard = -1;  ///< the predicate of @%p
  bool guard_is_negated = false;
  int members = -1;  ///< the register that names the lanes that must come here together
  int target = -1;   ///< of a branch

  Space space = Space::generic;  ///< of memory
  std::int64_t offset = 0;       ///< added to the register of the address
  int bytes = 0;                 ///< of an element
  int count = 1;                 ///< of elements
  bool is_signed = false;

  std::string callee;
  std::vector<std::size_t> arguments, results;  ///< where they lie in the caller's local memory

  std::string_view text;
};

struct Parameter {
  std::size_t offset, bytes;
};

enum class Special {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  lanemask_lt,
  warpid,
  clock
};

struct Function {
  bool is_kernel = true;
  std::size_t most_threads = 1024;    ///< of a block
  std::size_t least_blocks = 1;       ///< that a multiprocessor is to hold at once
  std::vector<Parameter> parameters;  ///< of a kernel in its parameters, of others in their local memory
  std::vector<Parameter> results;     ///< in local memory
  std::size_t parameter_bytes = 0;
  std::size_t shared_bytes = 0;  ///< without what a launch adds
  std::size_t local_bytes = 0;   ///< of a thread
  int num_registers = 0;
  std::vector<std::pair<int, std::uint64_t>> constants;
  std::vector<std::pair<int, std::uint64_t>> local_addresses;  ///< constants, but in the frame of a call
  std::vector<std::pair<int, Special>> specials;
  std::vector<Instruction> code;
};

/// Where a module's variables of device memory are: what the runtime knows by their names.
using VariableAddress = std::uint64_t (*)(const void* binary, const std::string& name, std::size_t bytes,
                                          const std::string& initial);

/// The text of one fat binary.
class Module {
 public:
  Module(const void* binary, std::string text, VariableAddress address);

  /// Read when it is first asked for; null where there is none.
  const Function* function(const std::string& name);

  struct Variable {
    Space space = Space::global;
    bool is_sized = true;  ///< not: as large as the launch says
    std::size_t bytes = 0, alignment = 1;
    std::string initial;
  };
  /// Declared outside of functions; null where there is none.
  const Variable* variable(const std::string& name) const;
  std::uint64_t address_of(const std::string& name, const Variable& variable) const {
    return address_(binary_, name, variable.bytes, variable.initial);
  }

 private:
  const void* binary_;
  std::string text_;
  VariableAddress address_;
  std::map<std::string, Variable> variables_;
  std::map<std::string, std::pair<std::size_t, std::size_t>> places_;  // of the text of functions
  std::map<std::string, std::unique_ptr<Function>> functions_;
};

/// `text` from .entry or .func to its last brace.
std::unique_ptr<Function> parse_function(const Module& module, std::string_view text);

/// ".align 8 .b8 name[16] = {1, 2}": what stands behind the space.
std::pair<std::string, Module::Variable> parse_variable(std::string_view text);

/// A word of letters, digits, _, $, % or a dot within at the beginning of a text.
std::string_view word_at(std::string_view text);
std::string_view trimmed(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);
/// Of "12", "-1", "0x1f", and "0f3F800000", which are bits.
std::uint64_t number_of(std::string_view text);

/// Sets what executes an instruction whose parts between the dots are these ("ld", "global", "f32"), and what of the
/// parts it has to remember. False: the opcode is of another kind.
using Parts = std::vector<std::string_view>;
std::string joined(Parts::const_iterator first, Parts::const_iterator last);  ///< with dots
bool decode_arithmetic(const Parts& parts, Instruction& instruction);
bool decode_conversion(const Parts& parts, Instruction& instruction);
bool decode_memory(const Parts& parts, Instruction& instruction);
bool decode_collective(const Parts& parts, Instruction& instruction);

}  // namespace fake_cuda::ptx
