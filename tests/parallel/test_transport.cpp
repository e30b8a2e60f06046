// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "core/error.hpp"
#include "parallel/collectives/transport.hpp"

namespace espalier {
namespace {

constexpr TransportFacts gpu{.device_is_host = false, .has_nccl = true};

std::string refusal(std::string_view word, const TransportFacts& facts) {
  try {
    choose_transport(word, facts);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.report().what;
  }
}

TEST(Transport, HostsHaveNoChoice) {
  EXPECT_EQ(choose_transport("", {}), Transport::host_memory);
  EXPECT_EQ(choose_transport("auto", {}), Transport::host_memory);
  EXPECT_EQ(refusal("nccl", {}), "this build of Espalier computes in host memory, so there is no choice of transport");
}

TEST(Transport, AutoIsNcclWhereItCanBe) {
  EXPECT_EQ(choose_transport("auto", gpu), Transport::nccl);
  TransportFacts facts = gpu;
  facts.ranks_per_device = 2;
  EXPECT_EQ(choose_transport("", facts), Transport::mpi_staged);
  facts = gpu;
  facts.has_nccl = false;
  EXPECT_EQ(choose_transport("", facts), Transport::mpi_staged);
}

TEST(Transport, WhatCannotBeIsRefused) {
  TransportFacts facts = gpu;
  facts.ranks_per_device = 3;
  EXPECT_EQ(refusal("nccl", facts), "NCCL takes one rank per GPU, and 3 ranks share one");
  facts.has_nccl = false;
  EXPECT_EQ(refusal("nccl", facts), "this Espalier was built without NCCL");
  EXPECT_EQ(refusal("mpi-gpu-aware", gpu), "this MPI library says that it cannot be handed device memory");
  EXPECT_EQ(refusal("ucx", gpu), "unknown transport");
  EXPECT_EQ(refusal("ucx", {}), "unknown transport");
}

TEST(Transport, EveryWordIsNamed) {
  EXPECT_EQ(transport_words(), "auto, nccl, mpi-staged, mpi-gpu-aware");
  EXPECT_EQ(transport_words(false), "auto, mpi-staged, mpi-gpu-aware");
}

TEST(Transport, WhatIsAskedForIsTaken) {
  TransportFacts facts = gpu;
  facts.mpi_is_gpu_aware = true;
  EXPECT_EQ(choose_transport("mpi-gpu-aware", facts), Transport::mpi_gpu_aware);
  EXPECT_EQ(choose_transport("mpi-staged", facts), Transport::mpi_staged);
  EXPECT_EQ(choose_transport("nccl", facts), Transport::nccl);
}

}  // namespace
}  // namespace espalier
