// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/tensor.hpp"
#include "io/checkpoint/checkpoint_manifest.hpp"

namespace espalier {
namespace {

using Blocks = std::vector<const StoredBlock*>;

constexpr std::size_t max_cut_dimensions = 4;  // those of our tensors have three

// Along which some block is less than the whole tensor.
std::vector<std::size_t> cut_dimensions(const Blocks& blocks) {
  const std::vector<Index>& shape = blocks.front()->global_shape;
  std::vector<std::size_t> dimensions;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (std::ranges::any_of(blocks, [&](const StoredBlock* block) { return block->count[d] != shape[d]; }))
      dimensions.push_back(d);
  return dimensions;
}

struct Corner {
  Index key = 0;  // all of its coordinates in one number
  int sign = 1;
};

// Of the box from `start`, of `count`, in the cut dimensions; + and - alternate from neighbour to neighbour.
void add_corners(const std::vector<std::size_t>& dimensions, const std::vector<Index>& shape,
                 const std::vector<Index>& start, const std::vector<Index>& count, int sign,
                 std::vector<Corner>& corners) {
  for (std::size_t corner = 0; corner < std::size_t{1} << dimensions.size(); ++corner) {
    Corner added{0, sign};
    for (std::size_t i = 0; i < dimensions.size(); ++i) {
      const std::size_t d = dimensions[i];
      const bool is_end = (corner >> i & 1) != 0;
      added.key = added.key * (shape[d] + 1) + start[d] + (is_end ? count[d] : 0);
      added.sign *= is_end ? -1 : 1;
    }
    corners.push_back(added);
  }
}

// Do the blocks cover each element as often as the whole tensor does? How often boxes cover what is known when the
// signs of their corners, added up at each place, are: adding these up along each dimension gives the numbers back.
bool cover_alike(const Blocks& blocks, const std::vector<std::size_t>& dimensions) {
  const std::vector<Index>& shape = blocks.front()->global_shape;
  std::vector<Corner> corners;
  for (const StoredBlock* const block : blocks)
    add_corners(dimensions, shape, block->start, block->count, 1, corners);
  add_corners(dimensions, shape, std::vector<Index>(shape.size(), 0), shape, -1, corners);
  std::ranges::sort(corners, {}, &Corner::key);
  Index sum = 0;
  for (std::size_t i = 0; i < corners.size(); ++i) {
    sum += corners[i].sign;
    if (i + 1 == corners.size() || corners[i + 1].key != corners[i].key)
      if (std::exchange(sum, 0) != 0)
        return false;
  }
  return true;
}

void check_tensor(const std::string& name, const Blocks& blocks, const Path& path) {
  const std::string one_writer = "exactly one writer for every element";
  const Index wanted = num_elements(blocks.front()->global_shape);
  Index covered = 0;
  for (const StoredBlock* const block : blocks) {
    if (block->global_shape != blocks.front()->global_shape || block->type != blocks.front()->type)
      refuse_manifest(path, "the blocks of a tensor disagree about its shape or type", name);
    const Index size = num_elements(block->count);
    if (size > wanted - covered)
      refuse_manifest(path, "an element of a tensor is stored twice", name, one_writer);
    covered += size;
  }
  if (covered != wanted)
    refuse_manifest(path, "elements of a tensor are not stored", fmt::format("{} of {} in {}", covered, wanted, name),
                    one_writer);
  const std::vector<std::size_t> dimensions = cut_dimensions(blocks);
  if (dimensions.size() > max_cut_dimensions)
    refuse_manifest(path, "a tensor is cut along too many dimensions", fmt::format("{} in {}", dimensions.size(), name),
                    fmt::format("at most {}", max_cut_dimensions));
  if (!cover_alike(blocks, dimensions))
    refuse_manifest(path, "an element of a tensor is stored twice", name, one_writer);
}

}  // namespace

void check_coverage(const std::vector<StoredBlock>& blocks, const Path& path) {
  std::map<std::string, Blocks> tensors;
  for (const StoredBlock& block : blocks)
    tensors[block.name].push_back(&block);
  for (const auto& [name, of_tensor] : tensors)
    check_tensor(name, of_tensor, path);
}

}  // namespace espalier
