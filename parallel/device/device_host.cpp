// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The device is the host: nothing to choose.
#include "parallel/device/device.hpp"

namespace espalier {

DeviceSurvey survey_devices() { return {}; }
void start_device(const Device&, int) {}

std::string device_architectures() { return {}; }
std::string device_name() { return {}; }
int device_processors() { return 0; }
DeviceMemory device_memory() { return {}; }
void show_regions_to_profiler() {}

}  // namespace espalier
