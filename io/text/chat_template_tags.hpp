// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/text/jinja_tags.hpp"

namespace espalier {

/// Is every tag of a template one that is known, but for what it writes of tools? An unknown one could write more text,
/// or leave a message out.
/// @throws std::runtime_error: names the first that is not
void require_known_tags(const JinjaTags& tags);

}  // namespace espalier
