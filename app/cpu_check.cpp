// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Compiled for the plain architecture, whatever the rest is compiled for, and run before any other initialisation: a
// program that needs what this CPU lacks says so instead of dying of an illegal instruction.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "app/cpu_features.hpp"

#if defined(__x86_64__) || defined(__i386__)
namespace {

void write_text(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0)
    _exit(2);
}

void require(bool needed, bool present, const char* name) {
  if (!needed || present)
    return;
  const char* const rank = std::getenv("PMI_RANK");
  if (rank == nullptr || std::strcmp(rank, "0") == 0) {
    write_text("espalier: error: this program was built for another CPU\n  got:    a CPU without ");
    write_text(name);
    write_text(
        "\n  wanted: the instruction set it was compiled for (-march of the build machine)\n"
        "  do:     build it on this kind of machine, or with -DESPALIER_ARCH=x86-64-v3 (or what all machines have)\n");
  }
  _exit(2);
}

__attribute__((constructor(101))) void check_cpu() {
  __builtin_cpu_init();
  const espalier::CpuFeatures& needed = espalier::required_cpu_features;
  require(needed.fma, __builtin_cpu_supports("fma") != 0, "FMA");
  require(needed.avx2, __builtin_cpu_supports("avx2") != 0, "AVX2");
  require(needed.avx512f, __builtin_cpu_supports("avx512f") != 0, "AVX512F");
  require(needed.avx512_bf16, __builtin_cpu_supports("avx512bf16") != 0, "AVX512_BF16");
}

}  // namespace
#endif
