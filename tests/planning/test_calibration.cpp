// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "planning/cluster.hpp"
#include "training/prediction/calibration.hpp"

namespace espalier {
namespace {

Accelerator made_up() {
  Accelerator device;
  device.name = "made up";
  device.memory_bytes = Index{1} << 34;
  device.memory_bandwidth = 20e9;
  device.memory_efficiency = 0.6;
  device.processors = 2;
  device.kernel_seconds = 5e-6;
  device.rate(Precision::fp32) = {
      .peak_flops = 2e11, .matmul_efficiency = 0.85, .half_depth = 25, .fill_waves = 0.7, .attention_efficiency = 0.35};
  return device;
}

std::vector<LayerSample> samples_of(const Accelerator& device) {
  std::vector<LayerSample> samples;
  for (const Index channels : {64, 256, 512, 1024})
    for (const Index length : {64, 256, 1024}) {
      const ModelConfig model{.vocab_size = 2000,
                              .max_sequence_length = length,
                              .num_layers = 1,
                              .hidden_size = channels,
                              .num_heads = channels / 64,
                              .ffn_hidden_size = 4 * channels};
      samples.push_back(predicted_sample(device, Precision::fp32,
                                         {.model = model, .micro_batch = 2048 / length, .sequence_length = length}));
    }
  return samples;
}

Accelerator uncalibrated() {
  Accelerator start = made_up();
  start.memory_efficiency = 0.9;
  start.kernel_seconds = 1e-5;
  start.rate(Precision::fp32) = {
      .peak_flops = 2e11, .matmul_efficiency = 0.5, .half_depth = 100, .fill_waves = 0.1, .attention_efficiency = 0.1};
  return start;
}

// A clock that is too coarse for a block says nothing about it; of two others the error in the middle is their mean.
TEST(Calibration, ErrorsAreOfTheBlocksThatWereTimed) {
  std::vector<LayerSample> samples = samples_of(made_up());
  samples.resize(3);
  samples[0].block = 0;
  samples[1].block *= 1.5;
  const Calibration found = calibrate(made_up(), Precision::fp32, samples);
  double sum = 0;
  for (const std::size_t i : {1, 2})
    sum += std::abs(predicted_sample(found.device, Precision::fp32, samples[i]).block / samples[i].block - 1);
  EXPECT_NEAR(found.median_error, sum / 2, 1e-12);
  EXPECT_GT(found.worst_error, found.median_error);
  EXPECT_LT(found.worst_error, 1);
}

// Times made by the formulas themselves are found again.
TEST(Calibration, RecoversTheDeviceThatMadeTheSamples) {
  const Calibration found = calibrate(uncalibrated(), Precision::fp32, samples_of(made_up()));
  EXPECT_LT(found.median_error, 0.01);
  EXPECT_LT(found.worst_error, 0.03);
  const MatrixRate& rate = found.device.rate(Precision::fp32);
  EXPECT_NEAR(rate.matmul_efficiency, 0.85, 0.05);
  EXPECT_NEAR(rate.attention_efficiency, 0.35, 0.05);
  EXPECT_NEAR(found.device.memory_efficiency, 0.6, 0.06);
}

TEST(Calibration, TellsHowFarItIsOff) {
  std::vector<LayerSample> samples = samples_of(made_up());
  samples.front().block *= 3;  // no device does this beside the others
  EXPECT_GT(calibrate(uncalibrated(), Precision::fp32, samples).worst_error, 0.2);
}

// A second precision leaves alone what the first has found of the device: its error is that of the file.
TEST(Calibration, WhatIsKnownOfTheDeviceStays) {
  Accelerator known = made_up();
  known.memory_efficiency = 0.4;  // slower than it is, which no product makes up for
  known.rate(Precision::fp32) = uncalibrated().rate(Precision::fp32);
  const Calibration found = calibrate(known, Precision::fp32, samples_of(made_up()), true);
  EXPECT_EQ(found.device.memory_efficiency, 0.4);
  EXPECT_EQ(found.device.kernel_seconds, known.kernel_seconds);
  EXPECT_NEAR(found.device.rate(Precision::fp32).matmul_efficiency, 0.85, 0.1);
  EXPECT_GT(found.worst_error, calibrate(known, Precision::fp32, samples_of(made_up())).worst_error);
}

TEST(Calibration, NeedsSamplesAndAPeak) {
  EXPECT_THROW(calibrate(made_up(), Precision::fp32, {}), Error);
  EXPECT_THROW(calibrate(made_up(), Precision::bf16, samples_of(made_up())), Error);
}

TEST(Calibration, TheFileReadsBack) {
  Cluster cluster;
  cluster.name = "made up";
  cluster.device = made_up();
  cluster.num_nodes = 2;
  cluster.devices_per_node = 4;
  cluster.device.moves_messages = true;
  cluster.node = {.bandwidth = 5e9, .latency = 3e-6};
  cluster.network = {.bandwidth = 1e9, .latency = 2e-5};
  cluster.reserved_bytes = Index{1} << 30;
  const Cluster read = parse_cluster(to_toml(cluster), "file");
  EXPECT_EQ(read.name, "made up");
  EXPECT_EQ(read.num_devices(), 8);
  EXPECT_TRUE(read.device.moves_messages);
  EXPECT_EQ(read.device.memory_bytes, cluster.device.memory_bytes);
  EXPECT_EQ(read.reserved_bytes, cluster.reserved_bytes);
  EXPECT_DOUBLE_EQ(read.device.rate(Precision::fp32).half_depth, 25);
  EXPECT_NEAR(read.device.rate(Precision::fp32).peak_flops, 2e11, 1e7);
  EXPECT_NEAR(read.network.bandwidth, 1e9, 1e6);
  EXPECT_NEAR(read.node.latency, 3e-6, 1e-9);
}

}  // namespace
}  // namespace espalier
