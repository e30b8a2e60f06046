// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/flat_blocks.hpp"

#include <fmt/format.h>

#include <tuple>

#include "core/error.hpp"
#include "core/ops/finite.hpp"
#include "core/shard_boxes.hpp"

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

template <class S>
void want(std::vector<WantedBox>& boxes, const std::vector<Parameter>& parameters, const FlatArray<S>& array, S* host) {
  for (const Parameter& parameter : parameters)
    for_each_box(parameter, array.held, parameter.flat_range(), [&](const ShardBox& box, Index position) {
      boxes.push_back(
          {stored_name(array.group, parameter), box.start, box.count, scalar_type_of<S>(), host + position});
    });
}

template <class S>
void check_size(const FlatArray<S>& array) {
  Index held = 0;
  for (const IndexRange& run : array.held)
    held += run.size();
  ESPALIER_ASSERT(
      held == static_cast<Index>(array.data.extent(0)),
      fmt::format("espalier::FlatArray: {} has {} elements for runs of {}", array.group, array.data.extent(0), held));
}

// Arrays for compute in 16 bits may overflow where the checkpoint does not: the first step tells.
template <class S>
void require_finite(const ExecSpace& exec, const CheckpointReader& checkpoint, const std::vector<Parameter>& parameters,
                    const FlatArray<S>& array) {
  if constexpr (std::is_same_v<S, State<S>>)
    if (const std::string tensor = not_finite_tensor(exec, parameters, array); !tensor.empty())
      throw Error(ExitCode::checkpoint, {.what = "a checkpoint holds numbers that are not finite",
                                         .where = checkpoint.path().string(),
                                         .got = "nan or inf in " + tensor,
                                         .wanted = "finite numbers",
                                         .todo = "use an older checkpoint"});
}

}  // namespace

std::string stored_name(const std::string& group, const Parameter& parameter) {
  return fmt::format("{}/{}", group, parameter.spec.name);
}

template <class S>
std::vector<TensorBlock> blocks_to_write(const std::vector<Parameter>& parameters, const std::string& group,
                                         const S* host, const std::vector<IndexRange>& held,
                                         const std::vector<IndexRange>& counted) {
  std::vector<TensorBlock> blocks;
  for (const Parameter& parameter : parameters)
    for (const IndexRange& run : counted) {
      const Index visited = for_each_box(parameter, held, run, [&](const ShardBox& box, Index position) {
        blocks.push_back({stored_name(group, parameter), scalar_type_of<S>(), parameter.spec.shape, box.start,
                          box.count, host + position});
      });
      ESPALIER_ASSERT(visited == intersection(parameter.flat_range(), run).size(),
                      fmt::format("espalier::blocks_to_write: elements of {} are counted here but not held",
                                  stored_name(group, parameter)));
    }
  return blocks;
}

template <class S>
std::string not_finite_tensor(const ExecSpace& exec, const std::vector<Parameter>& parameters,
                              const FlatArray<S>& array) {
  return tensor_at(parameters, array, first_not_finite<S>(exec, array.data));
}

template <class S>
std::string tensor_at(const std::vector<Parameter>& parameters, const FlatArray<S>& array, Index place) {
  for (const IndexRange& run : array.held) {
    if (place < run.size()) {
      for (const Parameter& parameter : parameters)
        if (intersection(parameter.flat_range(), {run.begin + place, run.begin + place + 1}).size() > 0)
          return stored_name(array.group, parameter);
      return array.group;  // between two parameters
    }
    place -= run.size();
  }
  return {};
}

template <class... S>
void read_flat_arrays(const ExecSpace& exec, const ReadBoxes& read, const std::vector<Parameter>& parameters,
                      const FlatArray<S>&... arrays) {
  (check_size(arrays), ...);
  const std::tuple<HostTensor<S, 1>...> mirrors(Kokkos::create_mirror_view(arrays.data)...);
  std::apply(
      [&](const HostTensor<S, 1>&... hosts) {
        (Kokkos::deep_copy(exec, hosts, arrays.data), ...);
        compat::fence(exec, "espalier::read_flat_arrays: padding stays as it is, the rest is written on the host");
        std::vector<WantedBox> boxes;
        (want(boxes, parameters, arrays, hosts.data()), ...);
        read(boxes);
        (Kokkos::deep_copy(exec, arrays.data, hosts), ...);
        compat::fence(exec,
                      "espalier::read_flat_arrays: any instance may read the arrays, and the host copies go away");
      },
      mirrors);
}

template <class... S>
void read_flat_arrays(const ExecSpace& exec, const CheckpointReader& checkpoint,
                      const std::vector<Parameter>& parameters, const FlatArray<S>&... arrays) {
  const ReadBoxes read = [&](std::span<const WantedBox> boxes) { checkpoint.read(boxes); };
  read_flat_arrays(exec, read, parameters, arrays...);
  (require_finite(exec, checkpoint, parameters, arrays), ...);
}

#define ESPALIER_INSTANTIATE(S)                                                                                     \
  template std::vector<TensorBlock> blocks_to_write<S>(const std::vector<Parameter>&, const std::string&, const S*, \
                                                       const std::vector<IndexRange>&,                              \
                                                       const std::vector<IndexRange>&);                             \
  template std::string not_finite_tensor<S>(const ExecSpace&, const std::vector<Parameter>&, const FlatArray<S>&);  \
  template std::string tensor_at<S>(const std::vector<Parameter>&, const FlatArray<S>&, Index);
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T)                                                                               \
  template void read_flat_arrays<T>(const ExecSpace&, const CheckpointReader&, const std::vector<Parameter>&, \
                                    const FlatArray<T>&);                                                     \
  template void read_flat_arrays<T>(const ExecSpace&, const ReadBoxes&, const std::vector<Parameter>&,        \
                                    const FlatArray<T>&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

// Weights and their masters.
#define ESPALIER_INSTANTIATE(T)                                                                                  \
  template void read_flat_arrays<T, State<T>>(const ExecSpace&, const CheckpointReader&,                         \
                                              const std::vector<Parameter>&, const FlatArray<T>&,                \
                                              const FlatArray<State<T>>&);                                       \
  template void read_flat_arrays<T, State<T>>(const ExecSpace&, const ReadBoxes&, const std::vector<Parameter>&, \
                                              const FlatArray<T>&, const FlatArray<State<T>>&);
ESPALIER_INSTANTIATE(bfloat16)
ESPALIER_INSTANTIATE(float16)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
