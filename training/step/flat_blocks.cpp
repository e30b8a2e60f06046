// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/flat_blocks.hpp"

#include <fmt/format.h>

#include "core/ops/finite.hpp"
#include "core/shard_boxes.hpp"
#include "core/with_scalar_type.hpp"
#include "io/checkpoint/checkpoint_names.hpp"

namespace espalier {
namespace {

// Calls visit(box, position in the array) for each box of a parameter that both the array and `wanted` hold. Returns
// the number of elements visited.
template <class Visit>
Index for_each_box(const Parameter& parameter, const std::vector<IndexRange>& held, IndexRange wanted,
                   const Visit& visit) {
  const IndexRange whole = parameter.flat_range();
  Index visited = 0;
  Index base = 0;  // where a held run begins in the array
  for (const IndexRange& run : held) {
    const IndexRange part = intersection(intersection(whole, wanted), run);
    if (part.size() > 0)
      for (const ShardBox& box : shard_boxes(parameter, {part.begin - whole.begin, part.end - whole.begin}))
        visit(box, base + whole.begin + box.offset - run.begin);
    visited += part.size();
    base += run.size();
  }
  return visited;
}

void want(std::vector<WantedBox>& boxes, const std::vector<Parameter>& parameters, const FlatArray& array,
          unsigned char* host) {
  const auto element_bytes = static_cast<Index>(size_of(array.type));
  for (const Parameter& parameter : parameters)
    for_each_box(parameter, array.held, parameter.flat_range(), [&](const ShardBox& box, Index position) {
      boxes.push_back({tensor_name(array.group, parameter.spec.name), box.start, box.count, array.type,
                       host + position * element_bytes});
    });
}

void check_size(const FlatArray& array) {
  Index held = 0;
  for (const IndexRange& run : array.held)
    held += run.size();
  ESPALIER_ASSERT(held == array.size(), fmt::format("espalier::FlatArray: {} has {} elements for runs of {}",
                                                    array.group, array.size(), held));
}

void require_finite(const ExecSpace& exec, const CheckpointReader& checkpoint, const std::vector<Parameter>& parameters,
                    const FlatArray& array) {
  if (const std::string tensor = not_finite_tensor(exec, parameters, array); !tensor.empty())
    throw Error(ExitCode::checkpoint, {.what = "a checkpoint holds numbers that are not finite",
                                       .where = checkpoint.path().string(),
                                       .got = "nan or inf in " + tensor,
                                       .wanted = "finite numbers",
                                       .todo = "use an older checkpoint"});
}

}  // namespace

std::vector<TensorBlock> blocks_to_write(const std::vector<Parameter>& parameters, const FlatArray& array,
                                         const void* host, const std::vector<IndexRange>& unique) {
  const auto element_bytes = static_cast<Index>(size_of(array.type));
  std::vector<TensorBlock> blocks;
  for (const Parameter& parameter : parameters)
    for (const IndexRange& run : unique) {
      const Index visited = for_each_box(parameter, array.held, run, [&](const ShardBox& box, Index position) {
        blocks.push_back({tensor_name(array.group, parameter.spec.name), array.type, parameter.spec.shape, box.start,
                          box.count, static_cast<const unsigned char*>(host) + position * element_bytes});
      });
      ESPALIER_ASSERT(visited == intersection(parameter.flat_range(), run).size(),
                      fmt::format("espalier::blocks_to_write: elements of {} are to be written here but not held",
                                  tensor_name(array.group, parameter.spec.name)));
    }
  return blocks;
}

std::string not_finite_tensor(const ExecSpace& exec, const std::vector<Parameter>& parameters, const FlatArray& array) {
  const Index element =
      with_state_type(array.type, [&]<class S>() { return first_not_finite<S>(exec, array.values<S>()); });
  return tensor_at(parameters, array, element);
}

std::string tensor_at(const std::vector<Parameter>& parameters, const FlatArray& array, Index element) {
  for (const IndexRange& run : array.held) {
    if (element < run.size()) {
      for (const Parameter& parameter : parameters)
        if (intersection(parameter.flat_range(), {run.begin + element, run.begin + element + 1}).size() > 0)
          return tensor_name(array.group, parameter.spec.name);
      return array.group;  // between two parameters
    }
    element -= run.size();
  }
  return {};
}

void read_flat_arrays(const ExecSpace& exec, const ReadBoxes& read, const std::vector<Parameter>& parameters,
                      const std::vector<FlatArray>& arrays) {
  std::vector<HostTensor<unsigned char, 1>> hosts;
  for (const FlatArray& array : arrays) {
    check_size(array);
    hosts.push_back(Kokkos::create_mirror_view(array.bytes));
    Kokkos::deep_copy(exec, hosts.back(), array.bytes);
  }
  compat::fence(exec, "espalier::read_flat_arrays: padding stays as it is, the rest is written on the host");
  std::vector<WantedBox> boxes;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    want(boxes, parameters, arrays[i], hosts[i].data());
  read(boxes);
  for (std::size_t i = 0; i < arrays.size(); ++i)
    Kokkos::deep_copy(exec, arrays[i].bytes, hosts[i]);
  compat::fence(exec, "espalier::read_flat_arrays: any instance may read the arrays, and the host copies go away");
}

void read_flat_arrays(const ExecSpace& exec, const CheckpointReader& checkpoint,
                      const std::vector<Parameter>& parameters, const std::vector<FlatArray>& arrays) {
  const ReadBoxes read = [&](std::span<const WantedBox> boxes) { checkpoint.read(boxes); };
  read_flat_arrays(exec, read, parameters, arrays);
  // Arrays for compute in 16 bits may overflow where the checkpoint does not: the first step tells.
  for (const FlatArray& array : arrays)
    if (is_state_type(array.type))
      require_finite(exec, checkpoint, parameters, array);
}

}  // namespace espalier
