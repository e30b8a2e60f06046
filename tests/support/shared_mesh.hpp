// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>

#include "parallel/mesh/process_mesh.hpp"
#include "tests/support/world.hpp"

namespace espalier::test {

/// Meshes that are made once, and never freed, as tests end after MPI: MPI_Comm_split spins, so eight ranks on two
/// cores take most of a second for one.
/// @param communicator must live as long as the program
inline const ProcessMesh& shared_mesh(const MeshLayout& layout, const Communicator& communicator = world()) {
  static auto& meshes = *new std::list<ProcessMesh>;
  for (const ProcessMesh& mesh : meshes)
    if (&mesh.world() == &communicator && mesh.layout() == layout)
      return mesh;
  return meshes.emplace_back(communicator, layout);
}

}  // namespace espalier::test
