// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

// Written by transformers_sizes.py with transformers 5.24.0.
// clang-format off
namespace espalier::test {

struct TransformersSize {
  std::string preset;
  long long parameters;
};

inline const std::vector<TransformersSize> transformers_sizes = {
    {"llama-tiny", 803968},
    {"mistral-tiny", 353952},
    {"qwen2-tiny", 329952},
    {"qwen3-tiny", 139712},
    {"smollm2-135m", 134515008},
    {"smollm2-360m", 361821120},
    {"llama2-7b", 6738415616},
    {"llama2-13b", 13015864320},
    {"llama2-70b", 68976648192},
    {"llama3-8b", 8030261248},
    {"llama3-70b", 70553706496},
    {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824},
    {"mistral-7b", 7241732096},
    {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},
    {"qwen2.5-7b", 7615616512},
    {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},
    {"qwen3-8b", 8190735360},
    {"llama-3.1-8b", 8030261248},
    {"llama-3.1-70b", 70553706496},
};

}  // namespace espalier::test
