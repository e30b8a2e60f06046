// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace espalier {

/// What every memo and config for GPUs says. README.md and docs/gpus.md say the same (ci/check_docs.py).
inline constexpr const char* gpu_caveat = "Nothing has run on several GPUs yet";

}  // namespace espalier
