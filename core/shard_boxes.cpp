// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/shard_boxes.hpp"

#include "core/error.hpp"

namespace espalier {
namespace {

/// Cuts a run of a row-major array into boxes: what begins and ends inside an index of a dimension is cut along the
/// next one, what lies between is whole.
class Cutter {
 public:
  explicit Cutter(const std::vector<Index>& shape) : shape_(shape), below_(shape.size(), 1), at_(shape.size(), 0) {
    for (std::size_t d = shape.size() - 1; d > 0; --d)
      below_[d - 1] = below_[d] * shape[d];
  }

  std::vector<ShardBox> cut(IndexRange run) {
    along(0, run);
    return std::move(boxes_);
  }

 private:
  // `run` counts elements below the indices at_[0..dim).
  void along(std::size_t dim, IndexRange run) {
    const Index below = below_[dim];
    const Index first_whole = (run.begin + below - 1) / below;
    const Index end_whole = run.end / below;
    if (first_whole > end_whole)  // inside one index
      return inside(dim, end_whole, run);
    if (run.begin % below != 0)
      inside(dim, first_whole - 1, {run.begin, first_whole * below});
    if (first_whole < end_whole)
      add(dim, {first_whole, end_whole});
    if (run.end % below != 0)
      inside(dim, end_whole, {end_whole * below, run.end});
  }

  void inside(std::size_t dim, Index index, IndexRange run) {
    at_[dim] = index;
    along(dim + 1, {run.begin - index * below_[dim], run.end - index * below_[dim]});
  }

  void add(std::size_t dim, IndexRange indices) {
    ShardBox box;
    box.start.assign(shape_.size(), 0);
    box.count = shape_;
    for (std::size_t d = 0; d < dim; ++d) {
      box.start[d] = at_[d];
      box.count[d] = 1;
      box.offset += at_[d] * below_[d];
    }
    box.start[dim] = indices.begin;
    box.count[dim] = indices.size();
    box.offset += indices.begin * below_[dim];
    boxes_.push_back(std::move(box));
  }

  const std::vector<Index>& shape_;
  std::vector<Index> below_;  // elements below one index of each dimension
  std::vector<Index> at_;
  std::vector<ShardBox> boxes_;
};

}  // namespace

std::vector<ShardBox> shard_boxes(const Parameter& parameter, IndexRange local) {
  ESPALIER_ASSERT(local.begin >= 0 && local.begin <= local.end && local.end <= parameter.size,
                  "espalier::shard_boxes: elements outside " + parameter.spec.name);
  if (local.size() == 0)
    return {};
  std::vector<ShardBox> boxes = Cutter(parameter.local_shape).cut(local);
  const auto dim = static_cast<std::size_t>(parameter.spec.shard.dim);
  for (ShardBox& box : boxes)
    box.start[dim] += parameter.spec.shard.range(parameter.spec.shape[dim]).begin;
  return boxes;
}

}  // namespace espalier
