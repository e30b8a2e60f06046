// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace espalier {

/// Our key ("run.steps") for what another program (nanoGPT, llm.c, Megatron-LM, DeepSpeed, Hugging Face, torchtitan) or
/// everyday language calls it ("max_iters"); empty where there is none. Not for our own keys.
std::string_view our_name_for(std::string_view key);

}  // namespace espalier
