// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "io/units.hpp"
#include "planning/cluster.hpp"

using namespace espalier;
using testing::HasSubstr;

namespace {

constexpr const char* whole = R"([cluster]
name = "own"
nodes = 4
devices_per_node = 8
reserved_memory = "3 GiB"
[device]
name = "x1"
memory = "64 GB"
memory_bandwidth = "2 TB/s"
memory_efficiency = 0.9
processors = 100
kernel_start = "6 us"
[bf16]
peak = "300 TFLOP/s"
matmul_efficiency = 0.7
half_depth = 90.0
fill_waves = 0.2
attention_efficiency = 0.4
[node_link]
bandwidth = "250 GB/s"
latency = "4 us"
[network_link]
bandwidth = "200 Gb/s"
latency = "0.01 ms"
)";

std::string message_of(const std::string& text) {
  try {
    parse_cluster(text, "c.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "no error";
}

std::string replaced(std::string text, const std::string& old, const std::string& now) {
  const std::size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), now);
}

TEST(ClusterFile, reads_the_efficiencies_of_earlier_versions) {
  const std::string earlier =
      replaced(replaced(replaced(whole, "memory_efficiency", "memory_share"), "matmul_efficiency", "product_share"),
               "attention_efficiency", "attention_share");
  EXPECT_EQ(to_toml(parse_cluster(earlier, "c.toml")), to_toml(parse_cluster(whole, "c.toml")));
  EXPECT_THAT(message_of(replaced(earlier, "product_share = 0.7", "product_share = 7")),
              HasSubstr("bf16.product_share"));
  EXPECT_THAT(message_of(replaced(whole, "matmul_efficiency = 0.7", "matmul_efficiency = 0.7\nproduct_share = 0.7")),
              HasSubstr("bf16.product_share: is an earlier name of matmul_efficiency: give one of them"));
}

TEST(ClusterFile, reads_every_unit) {
  const Cluster cluster = parse_cluster(whole, "c.toml");
  EXPECT_EQ(cluster.name, "own");
  EXPECT_EQ(cluster.num_devices(), 32);
  EXPECT_EQ(cluster.reserved_bytes, Index{3} << 30);
  EXPECT_EQ(cluster.device.memory_bytes, 64000000000);
  EXPECT_DOUBLE_EQ(cluster.device.memory_bandwidth, 2e12);
  EXPECT_DOUBLE_EQ(cluster.device.kernel_seconds, 6e-6);
  EXPECT_DOUBLE_EQ(cluster.device.rate(Precision::bf16).peak_flops, 300e12);
  EXPECT_FALSE(cluster.device.has(Precision::fp8));
  EXPECT_DOUBLE_EQ(cluster.node.bandwidth, 250e9);
  EXPECT_DOUBLE_EQ(cluster.network.bandwidth, 25e9);  // bits
  EXPECT_DOUBLE_EQ(cluster.network.latency, 1e-5);
}

TEST(ClusterFile, a_preset_is_the_start) {
  const Cluster cluster =
      parse_cluster("[cluster]\npreset = \"h100\"\nnodes = 3\n[bf16]\nproduct_share = 0.5\n", "c.toml");
  EXPECT_EQ(cluster.num_devices(), 24);
  EXPECT_DOUBLE_EQ(cluster.device.rate(Precision::bf16).matmul_efficiency, 0.5);
  EXPECT_DOUBLE_EQ(cluster.device.rate(Precision::bf16).peak_flops, 989e12);
}

TEST(ClusterFile, refuses_units_that_are_missing_or_absurd) {
  EXPECT_THAT(message_of(replaced(whole, "\"250 GB/s\"", "\"250\"")),
              HasSubstr("node_link.bandwidth: got \"250\", wanted a rate"));
  EXPECT_THAT(message_of(replaced(whole, "\"250 GB/s\"", "\"250 GB\"")), HasSubstr("node_link.bandwidth"));
  EXPECT_THAT(message_of(replaced(whole, "\"300 TFLOP/s\"", "\"300 PFLOP/s\"")), HasSubstr("bf16.peak"));
  const std::string absurd = message_of(replaced(whole, "\"64 GB\"", "\"64 kB\""));
  EXPECT_THAT(absurd, HasSubstr("did you mean"));
  EXPECT_THAT(message_of(replaced(whole, "\"4 us\"", "\"4 s\"")), HasSubstr("node_link.latency"));
  EXPECT_THAT(message_of(replaced(whole, "memory_efficiency = 0.9", "memory_efficiency = 1.9")),
              HasSubstr("device.memory_efficiency"));
}

// Each is what a wrong prefix makes of a value that machines have.
TEST(ClusterFile, refuses_what_no_machine_reaches) {
  const auto told = [](const std::string& old, const std::string& now, const std::string& problem) {
    const std::string message = message_of(replaced(whole, old, now));
    EXPECT_THAT(message, HasSubstr(problem));
  };
  told("\"200 Gb/s\"", "\"25 TB/s\"",
       "network_link.bandwidth: got \"25 TB/s\", wanted 1 MB/s to 1 TB/s: did you mean 25 GB/s?");
  told("\"0.01 ms\"", "\"10 s\"", "network_link.latency: got \"10 s\", wanted 1 ns to 100 ms: did you mean 10 us?");
  told("\"4 us\"", "\"4 s\"", "node_link.latency: got \"4 s\", wanted 1 ns to 100 ms: did you mean 4 us?");
  told("\"64 GB\"", "\"1 MB\"", "device.memory: got \"1 MB\", wanted 64 MiB to 16 TiB: did you mean 953.7 MiB?");
  told("\"64 GB\"", "\"80 TB\"", "device.memory: got \"80 TB\", wanted 64 MiB to 16 TiB");
  told("[bf16]\npeak = \"300 TFLOP/s\"", "[fp32]\npeak = \"1 PFLOP/s\"",
       "fp32.peak: got \"1 PFLOP/s\", wanted 1 GFLOP/s to 500 TFLOP/s: did you mean 1 TFLOP/s?");
  told("\"300 TFLOP/s\"", "\"312 PFLOP/s\"", "wanted 1 GFLOP/s to 25 PFLOP/s: did you mean 312 TFLOP/s?");
}

// A unit may be wrong although some machine has as much; a network a hundred times slower than the preset's is a plain
// one.
TEST(ClusterFile, refuses_what_is_far_from_its_preset) {
  const auto told = [](const std::string& overridden) {
    return message_of("[cluster]\npreset = \"h100\"\nnodes = 2\n" + overridden);
  };
  const std::string memory = told("[device]\nmemory_bandwidth = \"3350 MB/s\"\n");
  EXPECT_THAT(
      memory,
      HasSubstr("device.memory_bandwidth: got \"3350 MB/s\", 1000 times less than the preset's 3.35 TB/s: did you mean "
                "3.35 TB/s?"));
  const std::string peak = told("[bf16]\npeak = \"989 GFLOP/s\"\n");
  EXPECT_THAT(peak, HasSubstr("1000 times less than the preset's 989 TFLOP/s: did you mean 989 TFLOP/s?"));
  const std::string latency = told("[network_link]\nlatency = \"10 ms\"\n");
  EXPECT_THAT(latency, HasSubstr("1000 times more than the preset's 10 us: did you mean 10 us?"));
  EXPECT_EQ(told("[network_link]\nbandwidth = \"1.25 Gb/s\"\nlatency = \"60 us\"\n"), "no error");
  // A core of a laptop is no node of two EPYC, and yet a machine.
  EXPECT_EQ(message_of("[cluster]\npreset = \"cpu\"\n[device]\nmemory = \"16 GiB\"\n[fp32]\npeak = \"30 GFLOP/s\"\n"),
            "no error");
}

TEST(ClusterFile, every_preset_is_within_what_is_accepted) {
  for (const std::string& name : cluster_preset_names()) {
    Cluster cluster = cluster_preset(name + ":4");
    const Cluster read = parse_cluster(to_toml(cluster), name + ".toml");
    EXPECT_EQ(read.num_devices(), cluster.num_devices()) << name;
  }
}

TEST(ClusterFile, lists_all_problems_at_once) {
  const std::string message = message_of(replaced(replaced(whole, "\"4 us\"", "\"4\""), "nodes = 4", "nodes = 0"));
  EXPECT_THAT(message, HasSubstr("node_link.latency"));
  EXPECT_THAT(message, HasSubstr("cluster.nodes"));
  EXPECT_THAT(message_of(replaced(whole, "processors", "procesors")), HasSubstr("processors"));
}

TEST(ClusterFile, a_wrong_value_is_one_problem_in_its_own_words) {
  const std::string number = message_of(replaced(whole, "\"64 GB\"", "80"));
  EXPECT_THAT(number,
              HasSubstr("the cluster file has a problem\n    c.toml:8:10: device.memory: got 80 (an integer), wanted "
                        "bytes with a unit"));
  EXPECT_THAT(number, HasSubstr("docs/planner.md"));
  const std::string negative = message_of(replaced(whole, "\"64 GB\"", "\"-80 GiB\""));
  EXPECT_THAT(negative, HasSubstr("got \"-80 GiB\", wanted 64 MiB to 16 TiB\n"));
  const std::string fast = message_of(replaced(whole, "\"250 GB/s\"", "\"1 PB/s\""));
  EXPECT_THAT(fast,
              HasSubstr("c.toml:20:13: node_link.bandwidth: got \"1 PB/s\", wanted 1 MB/s to 10 TB/s: did you mean "
                        "1 TB/s? (GB/s are bytes, Gb/s bits)"));
}

TEST(ClusterFile, rules_of_several_keys_are_told_at_one_of_them) {
  EXPECT_THAT(message_of(replaced(whole, "nodes = 4", "nodes = 4000000")),
              HasSubstr("c.toml:3:9: cluster.nodes: 4000000 nodes of 8"));
  EXPECT_THAT(message_of(replaced(whole, "devices_per_node = 8", "devices_per_node = 70000")),
              HasSubstr("wanted 1 to 65536"));
  EXPECT_FALSE(problems(cluster_preset("a100-80:1x70000")).empty());
  EXPECT_THAT(message_of(replaced(whole, "\"3 GiB\"", "\"64 GiB\"")),
              HasSubstr("c.toml:5:19: cluster.reserved_memory: 64 GiB leaves"));
  EXPECT_THAT(message_of(replaced(whole, "latency = \"4 us\"\n", "")),
              HasSubstr("node_link.latency: is missing: give a time"));
  EXPECT_THAT(message_of(std::string(whole) + "alone = \"50 GB/s\"\n"),
              HasSubstr("alone"));  // a key of earlier versions
  EXPECT_THAT(message_of(replaced(whole, "attention_efficiency = 0.4\n", "")),
              HasSubstr("bf16.attention_efficiency: is missing: with a peak"));
}

TEST(ClusterFile, says_what_is_missing) {
  const std::string message = message_of("[cluster]\nnodes = 2\n");
  for (const char* part : {"device.memory:", "device.memory_bandwidth", "network_link.bandwidth", "peak"})
    EXPECT_THAT(message, HasSubstr(part));
}

TEST(ClusterPreset, sizes_follow_the_name) {
  EXPECT_EQ(cluster_preset("a100-80:16").num_devices(), 128);
  EXPECT_EQ(cluster_preset("a100-80:64x4").num_devices(), 256);
  EXPECT_EQ(cluster_preset("a100-80:64x4").devices_per_node, 4);
  for (const char* bad : {"a100-80:", "a100-80:0", "a100-80:4x", "a100-80:-1", "a100"})
    EXPECT_THROW(cluster_preset(bad), Error) << bad;
  for (const std::string& name : cluster_preset_names())
    EXPECT_TRUE(problems(cluster_preset(name)).empty()) << name;
}

// 128 of racks of 72 are two racks of 64, not one that is full; what cannot be dealt out is whole nodes.
TEST(ClusterPreset, devices_are_dealt_out_to_nodes) {
  const Cluster racks = with_devices(cluster_preset("gb200"), 128);
  EXPECT_EQ(racks.num_nodes, 2);
  EXPECT_EQ(racks.devices_per_node, 64);
  EXPECT_EQ(with_devices(cluster_preset("gb200"), 64).devices_per_node, 64);
  EXPECT_EQ(with_devices(cluster_preset("a100-80"), 2520).num_nodes, 315);
  EXPECT_EQ(with_devices(racks, 72).num_nodes, 1) << "a rack has room for 72, also after 64 of it were taken";
  EXPECT_EQ(with_devices(with_devices(racks, 4), 144).num_nodes, 2);
  for (const int devices : {12, 13, 28}) {  // 6 or 7 a node would cut groups of 4 tensor ranks
    const Cluster whole = with_devices(cluster_preset("a100-80"), devices);
    EXPECT_EQ(whole.num_nodes, (devices + 7) / 8);
    EXPECT_EQ(whole.devices_per_node, 8);
  }
}

TEST(ClusterPreset, published_names_are_understood) {
  EXPECT_EQ(accelerator_named("A100-40GB-SXM (DGX A100)"), "a100-40");
  EXPECT_EQ(accelerator_named("NVIDIA A100 SXM4 80GB"), "a100-80");
  EXPECT_EQ(accelerator_named("H100-96GB-HBM2e-SXM 500W (Grand Teton)"), "h100-hbm2e");
  EXPECT_EQ(accelerator_named("GB200"), "gb200");
  EXPECT_EQ(accelerator_named("AMD Instinct MI300X"), "mi300x");
  EXPECT_EQ(accelerator_named("H100 PCIe"), "h100-pcie");
  EXPECT_EQ(accelerator_named("NVIDIA A100-PCIE-40GB"), "a100-40-pcie");
  EXPECT_EQ(accelerator_named("GB200 NVL72"), "gb200");
  EXPECT_EQ(accelerator_named("B200 SXM"), "b200");
  EXPECT_EQ(accelerator_named("GB300 NVL72"), "gb300");
  EXPECT_EQ(accelerator_named("NVIDIA_H800-80GB"), "h800");
  EXPECT_EQ(accelerator_named("A800-SXM4-80GB"), "a800");
  EXPECT_EQ(accelerator_named("V100-SXM2-16GB"), "v100-16");
  EXPECT_EQ(accelerator_named("V100-SXM3-32GB (DGX-2)"), "v100");
  EXPECT_EQ(accelerator_named("nvidia_a100_sxm4_40g"), "a100-40");
  EXPECT_EQ(accelerator_named("NVIDIA GH200 480GB"), "gh200");
  EXPECT_EQ(accelerator_named("AMD Instinct MI300A"), "mi300a");
  EXPECT_EQ(accelerator_named("AMD Instinct MI350X"), "mi350x");
  EXPECT_EQ(accelerator_named("Intel(R) Data Center GPU Max 1550"), "pvc");
  EXPECT_EQ(accelerator_named("A100-SXM-64GB"), "a100-64");
  for (const char* const other : {"RTX 5090", "H100 NVL", "NVIDIA RTX A1000"})
    EXPECT_EQ(accelerator_named(other), std::nullopt) << other;
  EXPECT_LT(cluster_preset("a100-40-pcie").node.bandwidth, cluster_preset("a100-40").node.bandwidth);
}

// Best bf16 matmuls and all_reduces of 4 GiB and more, as published [stas00/ml-engineering, compute/accelerator and
// network; PVC: micro-benchmarks of Argonne's Aurora, all tiles at work]. The planner's large matmul reaches less, as
// training does, and no less than 0.7 of it.
TEST(ClusterPreset, rates_agree_with_published_measurements) {
  struct Measured {
    const char* name;
    double teraflops, m, n, k;
    double bus_gigabytes = 0;  // of the devices of a node; 0: not published
  };
  for (const Measured& each : {Measured{"a100-80", 271.2, 1024, 10240, 5120, 232},
                               {"a100-pcie", 252.9, 2048, 5120, 6144},
                               {"h100", 794.5, 2048, 2048, 13312, 370},
                               {"h200", 794.5, 2048, 2048, 13312, 370},
                               {"gh200", 828.6, 1024, 15360, 4096},
                               {"b200", 1745, 1792, 16128, 3072, 682},
                               {"b300", 1769, 12288, 18432, 1024},
                               {"gb200", 1822, 4096, 9728, 2048},
                               {"mi300x", 668.4, 10240, 15360, 8192, 312.9},
                               {"mi325x", 784.9, 13312, 10240, 8192},
                               {"mi355x", 1565, 12288, 8192, 8192},
                               {"pvc-tile", 220, 8192, 8192, 8192},
                               {"gaudi2", 418.7, 14336, 15360, 2048},
                               {"gaudi3", 1243, 16384, 4096, 768}}) {
    const Cluster cluster = cluster_preset(each.name);
    const double seconds = product_seconds(cluster.device, Precision::bf16, each.m, each.n, each.k);
    const double reached = 2 * each.m * each.n * each.k / seconds / 1e12 / each.teraflops;
    EXPECT_GT(reached, 0.55) << each.name;
    EXPECT_LT(reached, 1) << each.name;
    if (each.bus_gigabytes > 0) {
      EXPECT_NEAR(cluster.node.bandwidth / 1e9, each.bus_gigabytes, 0.05 * each.bus_gigabytes) << each.name;
    }
  }
}

// Dense peaks by units, clock and FLOPs of a cycle.
TEST(ClusterPreset, peaks_follow_from_units_and_clocks) {
  struct Unit {
    const char* name;
    Precision precision;
    double units, gigahertz, flops;
  };
  for (const Unit& each : {Unit{"a100-80", Precision::bf16, 108, 1.41, 2048},
                           {"a100-64", Precision::bf16, 124, 1.395, 2048},
                           {"gh200", Precision::bf16, 132, 1.83, 4096},
                           {"mi250x", Precision::bf16, 110, 1.7, 1024},
                           {"mi300a", Precision::bf16, 228, 2.1, 2048},
                           {"mi300x", Precision::bf16, 304, 2.1, 2048},
                           {"mi350x", Precision::bf16, 256, 2.2, 4096},
                           {"mi355x", Precision::bf16, 256, 2.4, 4096},
                           {"pvc-tile", Precision::bf16, 64, 1.6, 4096},
                           {"pvc", Precision::bf16, 128, 1.6, 4096},
                           {"a64fx", Precision::fp32, 48, 2.0, 64}})
    EXPECT_NEAR(accelerator_preset(each.name).rate(each.precision).peak_flops,
                each.units * each.gigahertz * 1e9 * each.flops,
                0.01 * accelerator_preset(each.name).rate(each.precision).peak_flops)
        << each.name;
}

// Where nothing was fitted to training runs, answers say so, and whose efficiency it is.
TEST(ClusterPreset, what_was_not_fitted_is_told) {
  for (const char* const compared : {"v100", "a100-40", "a100-80", "h100", "h200", "b200", "gb200", "gaudi2"})
    EXPECT_EQ(unfitted_text(accelerator_preset(compared)), "") << compared;
  EXPECT_EQ(unfitted_text(accelerator_preset("mi300a")),
            "Nothing was fitted to training runs on mi300a: its efficiency is that of mi300x.");
  for (const char* const other : {"mi250x", "mi300x", "mi350x", "gh200", "pvc-tile", "pvc", "a64fx", "a100-64"})
    EXPECT_NE(unfitted_text(accelerator_preset(other)), "") << other;
  EXPECT_NE(unfitted_text(parse_cluster(whole, "c.toml").device), "");
  const std::string measured = replaced(whole, "peak =", "gemm_rate =");
  EXPECT_EQ(unfitted_text(parse_cluster(measured, "c.toml").device), "");
}

TEST(ClusterFile, prices_and_powers_have_units) {
  const auto with = [](const std::string& line) { return replaced(whole, "nodes = 4\n", "nodes = 4\n" + line + "\n"); };
  const Cluster cluster =
      parse_cluster(with("price_per_device_hour = \"2.50 EUR\"\ndevice_power = \"1.2 kW\""), "c.toml");
  EXPECT_EQ(cluster.price_per_device_hour, 2.5);
  EXPECT_EQ(cluster.currency, "EUR");
  EXPECT_EQ(cluster.device_watts, 1200);
  const Cluster again = parse_cluster(to_toml(cluster), "c.toml");
  EXPECT_EQ(again.price_per_device_hour, 2.5);
  EXPECT_EQ(again.currency, "EUR");
  EXPECT_EQ(again.device_watts, 1200);
  for (const char* const wrong : {"2.50", "EUR", "-1 EUR", "nan EUR", ""})
    EXPECT_THAT(message_of(with(std::string("price_per_device_hour = \"") + wrong + "\"")),
                HasSubstr("cluster.price_per_device_hour: got \"" + std::string(wrong) +
                          "\", wanted a price with its currency, such as \"2.50 EUR\""));
  EXPECT_THAT(message_of(with("device_power = \"700\"")), HasSubstr("wanted a power with its unit"));
}

TEST(ClusterPreset, the_machine_is_told_in_nodes_and_devices) {
  EXPECT_EQ(machine_text(cluster_preset("a100-40:64"), 512), "512 devices: 64 nodes of 8 a100-40 with 40.00 GiB each");
  EXPECT_EQ(machine_text(cluster_preset("a100-40:64x8"), 512), machine_text(cluster_preset("A100-40:64"), 512));
}

TEST(Quantity, needs_its_unit) {
  EXPECT_EQ(parse_quantity(Quantity::bytes, "80 GiB"), 80.0 * (1 << 30));
  EXPECT_EQ(parse_quantity(Quantity::bytes, "80GB"), 80e9);
  EXPECT_EQ(parse_quantity(Quantity::bytes, "80"), std::nullopt);
  EXPECT_EQ(parse_quantity(Quantity::bytes_per_second, "200 Gb/s"), 25e9);
  EXPECT_EQ(parse_quantity(Quantity::bytes_per_second, "200 GB"), std::nullopt);
  EXPECT_EQ(parse_quantity(Quantity::seconds, "nan us"), std::nullopt);
  EXPECT_EQ(quantity_text(Quantity::flops_per_second, 312e12), "312 TFLOP/s");
}

// Two sockets with AVX2: bf16 is widened there, and no faster than fp32.
TEST(ClusterPreset, a_cpu_has_no_units_for_bf16) {
  const Accelerator cpu = accelerator_preset("cpu");
  EXPECT_EQ(cpu.rate(Precision::bf16).peak_flops, cpu.rate(Precision::fp32).peak_flops);
  EXPECT_NEAR(cpu.rate(Precision::fp32).peak_flops, 64 * 2.8e9 * 32, 5e10);
  EXPECT_EQ(product_seconds(cpu, Precision::bf16, 4096, 4096, 4096),
            product_seconds(cpu, Precision::fp32, 4096, 4096, 4096));
}

TEST(Cluster, a_rate_is_a_peak_or_measured) {
  const auto read = [](const std::string& rate) {
    return parse_cluster("[cluster]\npreset = \"h100\"\n[bf16]\n" + rate, "c.toml").device.rate(Precision::bf16);
  };
  EXPECT_FALSE(read("peak = \"900 TFLOP/s\"\n").is_measured);
  const MatrixRate measured = read("gemm_rate = \"700 TFLOP/s\"\n");
  EXPECT_TRUE(measured.is_measured);
  EXPECT_EQ(measured.peak_flops, 700e12);
  const MatrixRate preset = accelerator_preset("h100").rate(Precision::bf16);
  EXPECT_DOUBLE_EQ(measured.matmul_efficiency * 700e12, preset.matmul_efficiency * preset.peak_flops)
      << "as fast as before";
  EXPECT_DOUBLE_EQ(measured.attention_efficiency * 700e12, preset.attention_efficiency * preset.peak_flops);
  EXPECT_EQ(measured.peak(), 989e12) << "MFU still refers to the preset's peak";
  EXPECT_EQ(read("gemm_rate = \"400 TFLOP/s\"\n").matmul_efficiency, 1) << "no more than all of it";
  EXPECT_EQ(read("gemm_rate = \"700 TFLOP/s\"\nproduct_share = 0.9\n").matmul_efficiency, 0.9) << "the file's own";
  const MatrixRate both = read("peak = \"900 TFLOP/s\"\ngemm_rate = \"700 TFLOP/s\"\n");
  EXPECT_TRUE(both.is_measured);
  EXPECT_EQ(both.peak_flops, 700e12);
  EXPECT_EQ(both.peak(), 900e12);
  EXPECT_EQ(both.matmul_efficiency, measured.matmul_efficiency) << "of the GEMM rate";
  for (const double peak : {0.0, 900e12}) {
    Cluster cluster = cluster_preset("h100");
    cluster.device.rate(Precision::bf16).is_measured = true;
    cluster.device.rate(Precision::bf16).maker_peak = peak;
    const MatrixRate again = parse_cluster(to_toml(cluster), "c.toml").device.rate(Precision::bf16);
    EXPECT_TRUE(again.is_measured);
    EXPECT_EQ(again.peak_flops, 989e12);
    EXPECT_EQ(again.maker_peak, peak);
  }
}

}  // namespace
