// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace espalier {

/// Memory that the processes on this machine can have together: the machine's, or less where a control group (a
/// container, a batch job) allows less. 0 where unknown, and on devices, whose allocation says by itself what there is.
std::size_t machine_memory_bytes();

}  // namespace espalier
