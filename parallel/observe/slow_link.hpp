// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace espalier {

/// Whether a link is slow, by the seconds of its messages and of those of similar links. A difference below 1 ms may be
/// a late poll of the receiver.
constexpr bool is_slow_link(double seconds, double typical) {
  return seconds >= 1.5 * typical && seconds - typical >= 1e-3;
}

}  // namespace espalier
