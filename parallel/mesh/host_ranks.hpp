// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// The ranks of `world` on the same host as this one (same memory, cores, view of the files). Collective.
Communicator host_ranks(const Communicator& world);

}  // namespace espalier
