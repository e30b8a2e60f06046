// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/device_link.hpp"

namespace espalier {

const bool has_nccl = false;
std::string nccl_version() { return {}; }
std::shared_ptr<DeviceLinkFactory> make_nccl_factory() { return nullptr; }

}  // namespace espalier
