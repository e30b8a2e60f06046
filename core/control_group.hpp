// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace espalier {

// What the control groups of Linux (a container, a batch job) allow this process and its neighbours together: the least
// of our group and of those that it lies in (cgroup v2), or of the container (v1).

/// Bytes; the largest number where there is no limit.
std::size_t control_group_memory();

/// Cores' worth of time; 0 where there is no limit.
double control_group_cores();

/// That of "150000 100000" (time and period, cpu.max): 1.5; 0 for "max 100000" and what is no such text.
double cores_in_cpu_max(const std::string& text);

}  // namespace espalier
