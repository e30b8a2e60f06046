// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace espalier {

/// Memory that the processes on this machine can have together: the machine's, or less where a control group (a
/// container, a batch job) allows less. 0 where unknown, and on devices, whose allocation says by itself what there is.
std::size_t machine_memory_bytes();

/// What this process may still take under its limits of address space and of data.
struct MemoryLimit {
  std::size_t bytes = 0;  ///< the largest number where there is no limit
  std::string name = {};  ///< "ulimit -v 2000000", that of the shell, in KiB; empty where there is none
};
MemoryLimit process_memory_left();

}  // namespace espalier
