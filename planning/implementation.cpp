// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/implementation.hpp"

#include "models/logit_rows.hpp"

namespace espalier {

Implementation espalier_implementation(bool on_host) {
  Implementation made;
  made.compiled = true;
  made.overlaps_gather = false;
  made.gathers_rows_again = true;
  made.splits_messages = false;
  made.logits_at_once = on_host ? most_logits_on_host : most_logits_on_gpu;
  made.logit_multiple = on_host ? logit_multiple_on_host : logit_multiple_on_gpu;
  made.cudnn_attention = !on_host;
  return made;
}

}  // namespace espalier
