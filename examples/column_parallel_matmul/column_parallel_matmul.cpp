// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// C = A B on several ranks, cut in the two textbook ways: mpiexec -n 4 build/column_parallel_matmul
// Two levels of tiling: across ranks by the shard, here; inside a rank by the GEMM, core/ops/matmul_tiled.cpp, whose
// teams own a tile of C each. In a transformer: models/linear.hpp.
#include <algorithm>
#include <cstdio>

#include "core/ops/matmul.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/parameter.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/launch/runtime.hpp"

using namespace espalier;  // NOLINT(google-build-using-namespace): the example is one file

constexpr Index M = 128, K = 192, N = 512, chunk = 64;  // A (M, K), B (K, N), C (M, N); columns multiplied at once

// Small whole numbers: all sums are exact, a wrong one cannot hide behind rounding.
Tensor<float, 2> numbers(Index rows, Index cols, Index seed) {
  Tensor<float, 2> tensor("espalier::other::numbers", rows, cols);
  const auto host = Kokkos::create_mirror_view(tensor);
  for (Index i = 0; i < rows * cols; ++i)
    host.data()[i] = static_cast<float>((i / cols * 7 + i % cols * 3 + seed) % 5 - 2);
  Kokkos::deep_copy(tensor, host);
  return tensor;
}

void report(const Communicator& world, const char* cut, Index extent, Tensor<float, 2> c, Tensor<float, 2> whole) {
  const auto got = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), c);
  const auto wanted = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), whole);
  const bool equal = std::equal(got.data(), got.data() + M * N, wanted.data());
  for (int rank = 0; world.rank() == 0 && rank < world.size(); ++rank) {
    const IndexRange part = Shard{0, rank, world.size()}.range(extent);
    std::string picture(32, ' ');
    for (Index i = part.begin * 32 / extent; i < part.end * 32 / extent; ++i)
      picture.at(static_cast<std::size_t>(i)) = '*';
    std::printf("  rank %d  %s %3ld to %3ld of B  |%s|\n", rank, cut, part.begin, part.end - 1, picture.c_str());
  }
  ESPALIER_ASSERT(equal, "the parts do not make the whole");
  if (world.rank() == 0)
    std::printf("by %s: C is exactly the product in one piece\n\n", cut);
}

int main(int argc, char** argv) {
  return run_job(argc, argv, [](Runtime& runtime) {
    const Communicator& world = runtime.world();
    const ExecSpace exec;
    const Index size = world.size(), rank = world.rank();
    set_matmul_library(MatmulLibrary::tiled);  // the readable one
    const Tensor<float, 2> a = numbers(M, K, 1), b = numbers(K, N, 2), c = numbers(M, N, 0), whole = numbers(M, N, 0);
    matmul<float>(exec, whole, Transpose::no, a, Transpose::no, b);

    // By columns: C(:, ours) = A B(:, ours), chunk by chunk. No sums between ranks: the parts stand side by side.
    const IndexRange ours = Shard{1, rank, size}.range(N);
    const Index widest = (N + size - 1) / size;  // all_gather takes equal parts; shards differ by one column at most
    const Tensor<float, 2> part = numbers(M, widest, 0);
    for (Index col = 0; col < ours.size(); col += chunk) {
      const Index cols = std::min(chunk, ours.size() - col);
      matmul<float>(exec, {part.data() + col, M, cols, widest}, Transpose::no, a, Transpose::no,
                    {b.data() + ours.begin + col, K, cols, N});
    }
    const Tensor<float, 3> parts("espalier::other::parts", size, M, widest);
    all_gather(exec, world, parts, part);
    for (Index r = 0; r < size; ++r) {  // concatenate
      const IndexRange theirs = Shard{1, r, size}.range(N);
      Kokkos::deep_copy(exec, Kokkos::subview(c, Kokkos::ALL, std::pair(theirs.begin, theirs.end)),
                        Kokkos::subview(parts, r, Kokkos::ALL, std::pair(Index{0}, theirs.size())));
    }
    report(world, "columns", N, c, whole);

    // By rows: C = sum over ranks of A(:, ours) B(ours, :). Each rank has a summand of all of C.
    const IndexRange rows = Shard{0, rank, size}.range(K);
    matmul<float>(exec, c, Transpose::no, {a.data() + rows.begin, M, rows.size(), K}, Transpose::no,
                  {b.data() + rows.begin * N, rows.size(), N, N});
    all_reduce(exec, world, c);
    report(world, "rows", K, c, whole);
    return 0;
  });
}
