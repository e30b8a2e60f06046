// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives/communicator.hpp"
#include "parallel/launch/runtime.hpp"

namespace espalier::test {

/// Of the running test program (tests/support/mpi_main.cpp): tests are not passed arguments.
const Communicator& world();
const Runtime& runtime();

/// Its ranks as a ring.
inline int next_rank() { return (world().rank() + 1) % world().size(); }
inline int previous_rank() { return (world().rank() + world().size() - 1) % world().size(); }

}  // namespace espalier::test
