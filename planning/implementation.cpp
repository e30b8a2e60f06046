// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/implementation.hpp"

#include <fmt/format.h>

namespace espalier {

Implementation espalier_implementation(bool on_host, const TrainSettings& settings) {
  Implementation made;
  made.compiled = true;
  made.overlaps_gather = false;
  made.gathers_rows_again = true;
  made.splits_messages = false;
  made.on_host = on_host;
  made.logits = on_host ? logits_on_host : logits_on_gpu;
  made.cudnn_attention = !on_host && settings.cudnn_attention;
  made.gradient_bytes = settings.rounds_gradients ? 2 : 4;
  made.fp32_residual = settings.fp32_residual;
  made.separate_documents = settings.separate_documents;
  made.copies_state = on_host && settings.copies_state;  // on a GPU the copy lies in the memory of the host
  return made;
}

std::string why_not_cudnn(const ModelConfig& model, bool separate_documents) {
  if (model.attention_dropout > 0)
    return fmt::format("its dropout (model.attention_dropout = {}) would differ between layouts",
                       model.attention_dropout);
  return separate_documents ? "it sees no document starts (data.documents = \"separate\")" : "";
}

TrainingTypes types_of_program(const Implementation& implementation, Precision precision) {
  TrainingTypes types = types_of_precision(precision);
  if (!types.has_master_weights())
    return types;
  if (implementation.fp32_residual)
    types.residual = types.state();
  if (implementation.gradient_bytes == 2)
    types.wire = types.compute;
  return types;
}

MemoryOptions memory_options(const Implementation& implementation, Index sequence_length, const TrainingTypes& types) {
  MemoryOptions options;
  options.sequence_length = sequence_length;
  options.types = types;
  options.logits = implementation.logits;
  options.separate_documents = implementation.separate_documents;
  options.copies_state = implementation.copies_state;
  return options;
}

double sent_gradient_bytes(const Implementation& implementation, Precision precision) {
  const TrainingTypes types = types_of_program(implementation, precision);
  return static_cast<double>(size_of(types.wire.value_or(types.state())));
}

double stage_output_bytes(const Implementation& implementation, Precision precision, double rows, Index hidden_size) {
  const TrainingTypes types = types_of_program(implementation, precision);
  return static_cast<double>(size_of(types.residual)) * rows * static_cast<double>(hidden_size);
}

}  // namespace espalier
