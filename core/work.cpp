// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/work.hpp"

namespace espalier {
namespace {

template <class List>
void append(List& list, const List& more) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace

double MatmulWork::flops() const { return 2 * to_double(count) * to_double(m) * to_double(n) * to_double(k); }

double AttentionWork::flops() const {
  const double scores = to_double(shape.batch * shape.num_heads) * shape.seen_keys();
  return (backward ? 8 : 4) * to_double(count) * scores * to_double(shape.head_size);
}

double Work::flops() const {
  double sum = 0;
  for (const MatmulWork& matmul : matmuls)
    sum += matmul.flops();
  for (const AttentionWork& one : attention)
    sum += one.flops();
  return sum;
}

Work& Work::operator+=(const Work& more) {
  append(matmuls, more.matmuls);
  append(attention, more.attention);
  append(collectives, more.collectives);
  elementwise_bytes += more.elementwise_bytes;
  return *this;
}

Work operator*(Index times, Work work) {
  if (times == 0)
    return {};
  for (MatmulWork& matmul : work.matmuls)
    matmul.count *= times;
  for (AttentionWork& one : work.attention)
    one.count *= times;
  for (CollectiveWork& collective : work.collectives)
    collective.count *= times;
  work.elementwise_bytes *= to_double(times);
  return work;
}

}  // namespace espalier
