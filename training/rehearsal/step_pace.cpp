// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/rehearsal/step_pace.hpp"

#include "training/config/emulation.hpp"

namespace espalier {
namespace {

// How often an operation of a chunk says that a block is done.
int blocks_of(const ChunkLayers& layers, OperationKind kind) {
  const bool visits_embedding = layers.embedding && kind != OperationKind::backward_input;
  const int halves = kind == OperationKind::backward ? 2 : 1;
  return halves * (static_cast<int>(layers.count) + (layers.head ? 1 : 0)) + (visits_embedding ? 1 : 0);
}

}  // namespace

StepPace::StepPace(const RunConfig& config, const Layout& layout, const ProcessMesh& mesh)
    : emulate_(config.emulate), chunks_(layout.chunks().at(static_cast<std::size_t>(mesh.pp().rank()))), mesh_(mesh) {
  if (config.emulates())
    mesh_.world().observers().add(*this);
}

StepPace::~StepPace() { mesh_.world().observers().remove(*this); }

OperationPace StepPace::pace_of(const Operation& operation) const {
  const ChunkLayers& layers = chunks_.at(static_cast<std::size_t>(operation.chunk));
  const int part = operation.chunk * mesh_.pp().size() + mesh_.pp().rank();
  return {emulated_seconds(emulate_, operation.kind, layers.count, part), blocks_of(layers, operation.kind),
          slow_factor(emulate_, mesh_.world().rank())};
}

void StepPace::work_begins(Phase phase, const Operation* operation) {
  pace_ = operation != nullptr ? pace_of(*operation)
                               : OperationPace(phase == Phase::data ? emulate_.data : emulate_.optimizer, 1);
}

void StepPace::block_done(double communicated, const std::function<void()>& progress) {
  pace_->part_done(communicated, progress);
}

}  // namespace espalier
