// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/layout.hpp"

namespace espalier {

/// Reads "data=8,tensor=4,pipeline=2,micro_batch=1,recompute=full,zero_stage=1,..." over `start`. What is not named
/// stays; several virtual_stages without a schedule are interleaved. The words of a config and of `plan --json` are
/// understood, too, and abbreviations: "tp=4,zero=1,order=tp,dp,pp".
/// @param option whose value the text is, for messages
/// @throws Error (usage) with the keys known, for a key that is given twice, and for degrees of more ranks than any
/// machine has devices (most_devices).
Layout parse_layout(const std::string& text, Layout start, const std::string& option = "--layout");

/// The keys that such a text names, in order. @throws Error (usage), as parse_layout().
std::vector<std::string> layout_keys_in(const std::string& text, const std::string& option = "--fix");

}  // namespace espalier
