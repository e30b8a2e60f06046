// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/scalars.hpp"

namespace espalier {

struct AttentionShape {
  Index batch;            ///< B
  Index sequence_length;  ///< T
  Index num_heads;        ///< NH (local)
  Index head_size;        ///< HS
};

}  // namespace espalier
