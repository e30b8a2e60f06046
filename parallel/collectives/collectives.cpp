// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/region.hpp"
#include "parallel/collectives/collective_traffic.hpp"
#include "parallel/collectives/messages.hpp"

namespace espalier {
namespace {

template <class T>
constexpr std::size_t bytes_of(Index count) {
  return static_cast<std::size_t>(count) * sizeof(T);
}

template <class T>
FlatTensor<T> part(const FlatTensor<T>& tensor, Index begin, Index count) {
  return Tensor<T, 1>(tensor.data() + begin, count);
}

void require_extent(const char* what, std::size_t extent, Index wanted) {
  ESPALIER_ASSERT(static_cast<Index>(extent) == wanted, fmt::format("{}: got {}, wanted {}", what, extent, wanted));
}

/// As many bytes from each rank, one after another, `stride` bytes apart.
std::vector<ByteRange> equal_ranges(int size, std::size_t bytes, std::size_t stride) {
  std::vector<ByteRange> ranges;
  for (int rank = 0; rank < size; ++rank)
    ranges.push_back({static_cast<std::size_t>(rank) * stride, bytes});
  return ranges;
}

/// For tensors, behind the work on `exec` where a device link carries them.
MessageSet tensor_messages(const Communicator& communicator, const ExecSpace& exec) {
  return {communicator, communicator.device_link(), exec};
}

/// What messages touch of a tensor. The library goes on behind a deadline, and nothing keeps the caller's memory, or
/// the scratch, until it has ended: it gets a staging buffer, which the messages keep.
template <class T>
MpiBuffer<T> buffer_of(const Communicator& communicator, MessageSet& messages, const FlatTensor<T>& tensor) {
  if (!messages.calls_library())
    return {communicator, tensor};
  MpiBuffer<T> staging(MessageAccess::staged, communicator, tensor);
  messages.keep(staging);
  return staging;
}

/// Each rank sends `input` to all others: received holds their data by received_slot().
template <class T>
void exchange_all(const Communicator& communicator, MessageSet& messages, T* received, const T* input, Index count,
                  int tag, const char* what) {
  const std::size_t bytes = bytes_of<T>(count);
  messages.start_all_to_all(input, equal_ranges(communicator.size(), bytes, 0), received,
                            received_ranges(communicator.rank(), communicator.size(), bytes, bytes), tag);
  messages.wait(what);
}

template <class T>
void all_reduce_small(const ExecSpace& exec, const Communicator& communicator, const FlatTensor<T>& data, ReduceOp op) {
  const Index count = static_cast<Index>(data.extent(0));
  const auto received = communicator.scratch<T>(count * (communicator.size() - 1));
  MessageSet messages = tensor_messages(communicator, exec);
  const MpiBuffer<T> ours = buffer_of(communicator, messages, data);
  const MpiBuffer<T> theirs = buffer_of(communicator, messages, received);
  ours.load(exec, 0, count);
  exchange_all(communicator, messages, theirs.data(), ours.data(), count, tags::all_reduce_scatter, "all_reduce");
  theirs.store(exec, 0, static_cast<Index>(received.extent(0)));
  combine_in_rank_order(exec, data, received, count, communicator.rank(), communicator.size(), op);
  fence_before_messages(communicator, exec, "espalier::parallel: the scratch may be used again");
}

/// Each rank owns a slice: it gets the others' values of it, adds in rank order, and hands the result to all.
template <class T>
void reduce_piece(const ExecSpace& exec, const Communicator& communicator, const FlatTensor<T>& data, ReduceOp op) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  const Index count = static_cast<Index>(data.extent(0));
  const Index slice = owned_slice(count, 0, size).size();
  const IndexRange own = owned_slice(count, rank, size);
  std::vector<ByteRange> slices;
  for (int r = 0; r < size; ++r) {
    const IndexRange owned = owned_slice(count, r, size);
    slices.push_back({bytes_of<T>(owned.begin), bytes_of<T>(owned.size())});
  }
  const auto received = communicator.scratch<T>(slice * (size - 1));
  MessageSet messages = tensor_messages(communicator, exec);
  const MpiBuffer<T> ours = buffer_of(communicator, messages, data);
  const MpiBuffer<T> theirs = buffer_of(communicator, messages, received);

  ours.load(exec, 0, count);
  messages.start_all_to_all(ours.data(), slices, theirs.data(),
                            received_ranges(rank, size, bytes_of<T>(own.size()), bytes_of<T>(slice)),
                            tags::all_reduce_scatter);
  messages.wait("all_reduce (values to add)");
  theirs.store(exec, 0, static_cast<Index>(received.extent(0)));
  combine_in_rank_order(exec, part(data, own.begin, own.size()), received, slice, rank, size, op);

  ours.load(exec, own.begin, own.size());
  messages.start_all_gather(ours.data() + own.begin, ours.data(), slices, tags::all_reduce_gather);
  messages.wait("all_reduce (sums)");
  ours.store(exec, 0, count);
}

/// By the library, or a binomial tree: rank root + v gets the data from root + v - (highest bit of v) and passes it on.
void broadcast_bytes(const Communicator& communicator, MessageSet messages, void* data, std::size_t bytes, int root) {
  if (messages.calls_library()) {
    messages.start_broadcast(data, bytes, root);
    return messages.wait("broadcast");
  }
  const int size = communicator.size();
  const int distance = (communicator.rank() - root + size) % size;  // from the root
  int step = 1;
  while (step <= distance)
    step *= 2;
  if (distance > 0) {
    messages.receive(data, bytes, (distance - step / 2 + root) % size, tags::broadcast);
    messages.wait("broadcast");
  }
  for (; distance + step < size; step *= 2)
    messages.send(data, bytes, (distance + step + root) % size, tags::broadcast);
  messages.wait("broadcast");
}

}  // namespace

namespace impl {

template <class T>
void all_reduce(const ExecSpace& exec, const Communicator& communicator, const FlatTensor<T>& data, ReduceOp op) {
  const Index count = static_cast<Index>(data.extent(0));
  if (communicator.size() == 1 || count == 0)
    return;
  const Region region("espalier::parallel::all_reduce");
  if (is_small_reduce(count, sizeof(T)))
    return all_reduce_small(exec, communicator, data, op);
  const Index piece = all_reduce_piece(sizeof(T));
  for (Index begin = 0; begin < count; begin += piece)
    reduce_piece(exec, communicator, part(data, begin, std::min(piece, count - begin)), op);
}

void all_gather(const ExecSpace& exec, const Communicator& communicator, const Bytes& output, const Bytes& input) {
  const int rank = communicator.rank();
  const Index bytes = static_cast<Index>(input.extent(0));
  require_extent("all_gather: bytes of the output", output.extent(0), bytes * communicator.size());
  const Bytes own = part(output, rank * bytes, bytes);
  if (own.data() != input.data())
    Kokkos::deep_copy(exec, own, input);
  if (communicator.size() == 1)
    return;
  const Region region("espalier::parallel::all_gather");
  MessageSet messages = tensor_messages(communicator, exec);
  const auto all = buffer_of(communicator, messages, output);
  all.load(exec, rank * bytes, bytes);
  messages.start_all_gather(all.data() + rank * bytes, all.data(),
                            equal_ranges(communicator.size(), input.extent(0), input.extent(0)), tags::all_gather);
  messages.wait("all_gather");
  all.store(exec, 0, bytes * communicator.size());
}

template <class T>
void reduce_scatter(const ExecSpace& exec, const Communicator& communicator, const FlatTensor<T>& output,
                    const FlatTensor<T>& input) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  const Index count = static_cast<Index>(output.extent(0));
  require_extent("reduce_scatter: elements of the input", input.extent(0), count * size);
  const auto own = part(input, rank * count, count);
  if (own.data() != output.data())
    Kokkos::deep_copy(exec, output, own);
  if (size == 1 || count == 0)
    return;
  const Region region("espalier::parallel::reduce_scatter");
  const Index piece = reduce_scatter_piece(count, sizeof(T), size);
  const auto received = communicator.scratch<T>(piece * (size - 1));
  MessageSet messages = tensor_messages(communicator, exec);
  const MpiBuffer<T> all = buffer_of(communicator, messages, input);
  const MpiBuffer<T> theirs = buffer_of(communicator, messages, received);
  all.load(exec, 0, count * size);
  for (Index begin = 0; begin < count; begin += piece) {
    const Index n = std::min(piece, count - begin);
    messages.start_all_to_all(all.data() + begin, equal_ranges(size, bytes_of<T>(n), bytes_of<T>(count)), theirs.data(),
                              received_ranges(rank, size, bytes_of<T>(n), bytes_of<T>(n)), tags::reduce_scatter);
    messages.wait("reduce_scatter");
    theirs.store(exec, 0, n * (size - 1));
    combine_in_rank_order(exec, part(output, begin, n), received, n, rank, size, ReduceOp::sum);
    fence_before_messages(communicator, exec, "espalier::parallel: the scratch may be used again");
  }
}

void broadcast(const ExecSpace& exec, const Communicator& communicator, const Bytes& data, int root) {
  if (communicator.size() == 1)
    return;
  const Region region("espalier::parallel::broadcast");
  const Index bytes = static_cast<Index>(data.extent(0));
  MessageSet messages = tensor_messages(communicator, exec);
  const auto buffer = buffer_of(communicator, messages, data);
  buffer.load(exec, 0, bytes);
  broadcast_bytes(communicator, std::move(messages), buffer.data(), data.extent(0), root);
  buffer.store(exec, 0, bytes);
}

void all_gather(const Communicator& communicator, std::span<std::byte> output, std::span<const std::byte> input) {
  require_extent("all_gather: bytes of the output", output.size(), std::ssize(input) * communicator.size());
  MessageSet messages(communicator);
  // Memory of the caller, which may go while the library still writes: so into memory that can stay.
  const auto all = std::make_shared<std::vector<std::byte>>(output.size());
  messages.keep(all);
  std::byte* const own = all->data() + communicator.rank() * std::ssize(input);
  std::copy(input.begin(), input.end(), own);
  messages.start_all_gather(own, all->data(), equal_ranges(communicator.size(), input.size(), input.size()),
                            tags::all_gather);
  messages.wait("all_gather");
  std::copy(all->begin(), all->end(), output.begin());
}

void broadcast(const Communicator& communicator, std::span<std::byte> data, int root) {
  MessageSet messages(communicator);
  const auto kept = std::make_shared<std::vector<std::byte>>(data.begin(), data.end());
  messages.keep(kept);
  broadcast_bytes(communicator, std::move(messages), kept->data(), data.size(), root);
  std::copy(kept->begin(), kept->end(), data.begin());
}

}  // namespace impl

void barrier(const Communicator& communicator) {
  if (communicator.size() == 1)
    return;
  MessageSet messages(communicator);
  if (messages.calls_library()) {
    messages.start_barrier();
    return messages.wait("barrier");
  }
  const char here = 0;
  std::vector<char> others(static_cast<std::size_t>(communicator.size() - 1));
  exchange_all(communicator, messages, others.data(), &here, 1, tags::barrier, "barrier");
}

#define ESPALIER_INSTANTIATE(T)                                                                          \
  template void impl::all_reduce(const ExecSpace&, const Communicator&, const FlatTensor<T>&, ReduceOp); \
  template void impl::reduce_scatter(const ExecSpace&, const Communicator&, const FlatTensor<T>&, const FlatTensor<T>&);
ESPALIER_FOR_SUMMED_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
