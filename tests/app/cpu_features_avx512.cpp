// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Stands for a program that was compiled with AVX512.
#include "app/cpu_features.hpp"

constinit const espalier::CpuFeatures espalier::required_cpu_features = {false, true, true, true};

int main() { return 0; }
