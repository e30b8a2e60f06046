// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together: shfl, vote, bar.warp, ldmatrix, and products of tensor cores.
#include "tests/support/fake_cuda/ptx_numbers.hpp"
#include "tests/support/fake_cuda/ptx_warp.hpp"

namespace fake_cuda::ptx {
namespace {

enum class Shuffle { up, down, bfly, idx };

// shfl.sync d|p, a, b, c, members: see the PTX manual for what the bits of c say.
template <Shuffle mode>
void shuffle(Warp& w, const Instruction& i, Lanes lanes) {
  const bool has_predicate = i.num_results == 2;
  const std::size_t first = has_predicate ? 2 : 1;
  const Register source = w[i.operands[first]];
  Lanes within = 0;
  for_lanes(lanes, [&](int lane) {
    const auto b = get<std::uint32_t>(w[i.operands[first + 1]], lane) & 31;
    const auto c = get<std::uint32_t>(w[i.operands[first + 2]], lane);
    const int clamp = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
    const int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
    const int by = static_cast<int>(b);
    int from = mode == Shuffle::up     ? lane - by
               : mode == Shuffle::down ? lane + by
               : mode == Shuffle::bfly ? lane ^ by
                                       : lowest | (by & ~segment);
    const bool is_within = mode == Shuffle::up ? from >= highest : from <= highest;
    if (!is_within)
      from = lane;
    if ((lanes >> from & 1) == 0)
      w.complain(i, lane, "reads lane " + std::to_string(from) + ", which does not take part");
    within |= static_cast<Lanes>(is_within) << lane;
    put(w[i.operands[0]], lane, get<std::uint32_t>(source, from));
  });
  if (has_predicate) {
    Lanes& predicate = w.predicate(i.operands[1]);
    predicate = (predicate & ~lanes) | within;
  }
}

// Of those of its members that are still there.
Lanes votes(Warp& w, const Instruction& i, int lane, Lanes lanes) {
  return w.predicate(i.operands[1]) & lanes & get<Lanes>(w[i.members], lane);
}
void ballot(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) { put(w[i.operands[0]], lane, votes(w, i, lane, lanes)); });
}
template <bool all>
void vote(Warp& w, const Instruction& i, Lanes lanes) {
  Lanes result = 0;
  for_lanes(lanes, [&](int lane) {
    const Lanes yes = votes(w, i, lane, lanes), members = get<Lanes>(w[i.members], lane) & lanes;
    result |= static_cast<Lanes>(all ? yes == members : yes != 0) << lane;
  });
  Lanes& predicate = w.predicate(i.operands[0]);
  predicate = (predicate & ~lanes) | result;
}

void active_lanes(Warp& w, const Instruction& i, Lanes lanes) {
  for_lanes(lanes, [&](int lane) { put(w[i.operands[0]], lane, lanes); });
}

void warp_barrier(Warp& w, const Instruction&, Lanes lanes) { w.order(lanes); }

// ldmatrix.x4: lanes 8m to 8m + 7 name the rows of matrix m, of eight numbers of 16 bits. Lane l gets columns 2(l%4)
// and +1 of row l/4, or of the transpose.
template <bool transposed>
void load_matrices(Warp& w, const Instruction& i, Lanes lanes) {
  std::uint16_t rows[warp_size][8] = {};
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t address =
        w[i.operands[4]].of[static_cast<std::size_t>(lane)] + static_cast<std::uint64_t>(i.offset);
    if (const char* const row = w.reach(i, lane, Space::shared, address, sizeof rows[lane], Warp::Use::read))
      std::memcpy(rows[lane], row, sizeof rows[lane]);
  });
  for_lanes(lanes, [&](int lane) {
    const int near = lane / 4, far = lane % 4 * 2;
    for (int m = 0; m < 4; ++m) {
      const std::uint32_t low = transposed ? rows[8 * m + far][near] : rows[8 * m + near][far];
      const std::uint32_t high = transposed ? rows[8 * m + far + 1][near] : rows[8 * m + near][far + 1];
      put(w[i.operands[static_cast<std::size_t>(m)]], lane, high << 16 | low);
    }
  });
}

// mma.m16n8k16 d, a, b, c. In a word lie two neighbours of a row of A, or of a column of B; lane l has those of row, or
// column, l/4 that begin at 2(l%4). Words 0 to 3 of A: rows, rows + 8, and both at columns + 8. Words 0 and 1 of B:
// rows, rows + 8. D as A, but one number of fp32 in a register.
template <class T>
void multiply_add(Warp& w, const Instruction& i, Lanes lanes) {
  float a[16][16], b[16][8];
  for (int lane = 0; lane < warp_size; ++lane)
    for (int part = 0; part < 2; ++part) {
      const int near = lane / 4, far = lane % 4 * 2 + part;
      const auto number = [&](std::size_t operand) {
        T value;
        value.bits = static_cast<std::uint16_t>(get<std::uint32_t>(w[i.operands[operand]], lane) >> (16 * part));
        return static_cast<float>(value);
      };
      for (int word = 0; word < 4; ++word)
        a[near + word % 2 * 8][far + word / 2 * 8] = number(static_cast<std::size_t>(4 + word));
      for (int word = 0; word < 2; ++word)
        b[far + word * 8][near] = number(static_cast<std::size_t>(8 + word));
    }
  for_lanes(lanes, [&](int lane) {
    for (int k = 0; k < 4; ++k) {
      const int row = lane / 4 + k / 2 * 8, column = lane % 4 * 2 + k % 2;
      float sum = 0;
      for (int inner = 0; inner < 16; ++inner)
        sum += a[row][inner] * b[inner][column];
      put(w[i.operands[static_cast<std::size_t>(k)]], lane,
          sum + get<float>(w[i.operands[static_cast<std::size_t>(10 + k)]], lane));
    }
  });
}

}  // namespace

bool decode_collective(const Parts& parts, Instruction& instruction) {
  constexpr std::pair<std::string_view, Execute> all[] = {
      {"shfl.sync.up.b32", shuffle<Shuffle::up>},
      {"shfl.sync.down.b32", shuffle<Shuffle::down>},
      {"shfl.sync.bfly.b32", shuffle<Shuffle::bfly>},
      {"shfl.sync.idx.b32", shuffle<Shuffle::idx>},
      {"vote.sync.ballot.b32", ballot},
      {"vote.sync.any.pred", vote<false>},
      {"vote.sync.all.pred", vote<true>},
      {"activemask.b32", active_lanes},
      {"bar.warp.sync", warp_barrier},
      {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", load_matrices<false>},
      {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", load_matrices<true>},
      {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply_add<BFloat>},
      {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply_add<Half>},
  };
  const std::string name = joined(parts.begin(), parts.end());
  for (const auto& [known, execute] : all)
    if (name == known)
      instruction.execute = execute;
  return instruction.execute != nullptr;
}

}  // namespace fake_cuda::ptx
