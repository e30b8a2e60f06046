// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/implementation.hpp"

namespace espalier {

Implementation espalier_implementation(bool on_host) {
  Implementation made;
  made.compiled = true;
  made.overlaps_gather = false;
  made.gathers_rows_again = true;
  made.splits_messages = false;
  made.on_host = on_host;
  made.logits = on_host ? logits_on_host : logits_on_gpu;
  made.cudnn_attention = !on_host;
  return made;
}

}  // namespace espalier
