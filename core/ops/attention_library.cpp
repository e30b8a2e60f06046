// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/attention_library.hpp"

#include <atomic>

#include "core/error.hpp"
#include "core/ops/attention_cudnn.hpp"

namespace espalier {
namespace {

std::atomic<AttentionLibrary>& chosen_attention() {
  static std::atomic<AttentionLibrary> library{attention_libraries().back()};
  return library;
}

}  // namespace

const char* to_string(AttentionLibrary library) {
  switch (library) {
    case AttentionLibrary::own: return "own";
    case AttentionLibrary::cudnn: return "cudnn";
  }
  return "unknown";
}

std::vector<AttentionLibrary> attention_libraries() {
#ifdef ESPALIER_HAVE_CUDNN
  return {AttentionLibrary::own, AttentionLibrary::cudnn};
#else
  return {AttentionLibrary::own};
#endif
}

AttentionLibrary attention_library() { return chosen_attention(); }
void set_attention_library(AttentionLibrary library) { chosen_attention() = library; }

AttentionLibrary parse_attention_library(const std::string& word) {
  std::string present = "auto";
  for (const AttentionLibrary library : attention_libraries()) {
    if (word == to_string(library))
      return library;
    present += std::string(", ") + to_string(library);
  }
  if (word == "auto")
    return attention_libraries().back();
  throw Error(ExitCode::usage, {.what = "this build does not have this attention library",
                                .got = word,
                                .wanted = present,
                                .todo = "set run.attention to one of these; docs/gpus.md says how cuDNN is found"});
}

std::size_t attention_workspace_bytes(ScalarType type, AttentionLibrary library, const AttentionShape& shape) {
  const bool by_cudnn = !is_state_type(type) && library == AttentionLibrary::cudnn && Kokkos::is_initialized();
  return by_cudnn ? impl::cudnn_workspace_bytes(type, shape) : 0;
}

std::string describe_attention(ScalarType type, const AttentionShape& shape) {
  if (attention_library() == AttentionLibrary::own)
    return "own kernels";
  const std::string refusal = is_state_type(type) ? "it computes in 16 bits" : impl::cudnn_refusal(type, shape);
  return refusal.empty() ? "cuDNN" : "own kernels, not cuDNN: " + refusal;
}

void release_attention_workspace() { impl::release_cudnn_workspaces(); }

std::string describe_attention_libraries() {
  const std::string version = impl::cudnn_library_version();
  return "own kernels" + (version.empty() ? std::string() : ", cuDNN " + version);
}

}  // namespace espalier
