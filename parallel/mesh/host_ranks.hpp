// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Those of the ranks that share a host (memory, cores, a view of the files) with this one. Collective.
Communicator host_ranks(const Communicator& world);

}  // namespace espalier
