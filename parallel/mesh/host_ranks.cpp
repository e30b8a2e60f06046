// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh/host_ranks.hpp"

#include "parallel/collectives/mpi_check.hpp"

namespace espalier {

Communicator host_ranks(const Communicator& world) {
  MPI_Comm handle;
  ESPALIER_MPI(MPI_Comm_split_type(world.handle(), MPI_COMM_TYPE_SHARED, world.rank(), MPI_INFO_NULL, &handle));
  Communicator host(handle, "host", world.state()->context);
  ESPALIER_MPI(MPI_Comm_free(&handle));
  return host;
}

}  // namespace espalier
