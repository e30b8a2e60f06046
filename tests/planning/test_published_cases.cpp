// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/file.hpp"
#include "tests/published/case_report.hpp"

using namespace espalier;
using testing::HasSubstr;
using testing::Not;

namespace {

std::vector<PricedCase> price_table(const std::string& text) {
  std::vector<PricedCase> cases;
  for (PublishedCase& read : read_cases(text, "table.csv").cases)
    cases.push_back(price_case(std::move(read)));
  return cases;
}

const std::vector<PricedCase>& published() {
  static const std::vector<PricedCase> cases = price_table(read_file(ESPALIER_PUBLISHED_ROWS, ExitCode::data));
  return cases;
}

// Of the timed rows that are priced; none is off by more than `most`.
ErrorSummary time_errors(const std::vector<PricedCase>& cases, double most) {
  std::vector<double> errors;
  for (const PricedCase& each : cases)
    if (each.published.timed && each.predicted_seconds) {
      errors.push_back(each.time_error());
      EXPECT_LT(std::abs(each.time_error()), most) << each.published.id;
    }
  return summary_of(errors);
}

// The goal is 10 % and 25 %; these rows come nearer, and a change that loses it shows here. A curve of attention that
// lowers the errors of left-out rows raised those of llm.c, whose sequences are short: from 11 and 8 to 23 and 16 %.
TEST(PublishedCases, times_are_predicted) {
  const ErrorSummary summary = time_errors(published(), 0.25);
  EXPECT_GE(summary.count, 35u);
  EXPECT_LT(summary.median, 0.05);
  EXPECT_LT(summary.p95, 0.17);
}

// Other documents: other programs, newer devices, larger networks (docs/planner.md says what was fitted to them).
TEST(PublishedCases, times_of_other_documents_are_predicted) {
  const ErrorSummary summary = time_errors(price_table(read_file(ESPALIER_OTHER_ROWS, ExitCode::data)), 0.25);
  EXPECT_EQ(summary.count, 67u) << "every row is priced";
  EXPECT_LT(summary.median, 0.08);
  EXPECT_LT(summary.p95, 0.22);
}

// One of its dies, unless the peak is that of both.
TEST(PublishedCases, an_mi250_is_what_its_peak_says) {
  const auto device = [](const std::string& peak) {
    return read_case(parse_csv("gpu,peak_tflops,layers,hidden,seq_len,gpus\nMI250X," + peak + ",24,2048,2048,8\n", "t")
                         .rows[0])
        .problem.cluster.device.name;
  };
  EXPECT_EQ(device("191.5"), "mi250x");
  EXPECT_EQ(device(""), "mi250x");
  EXPECT_EQ(device("383"), "mi250x-module");
}

TEST(PublishedCases, memory_is_predicted) {
  std::size_t rows = 0;
  for (const PricedCase& each : published())
    if (each.published.measured_bytes > 0) {
      ASSERT_TRUE(each.predicted_bytes) << each.published.id;
      EXPECT_LT(std::abs(each.memory_error()), each.published.analytic ? 0.03 : 0.10) << each.published.id;
      ++rows;
    }
  EXPECT_GE(rows, 10u);
}

TEST(PublishedCases, the_report_ends_with_the_summary) {
  const std::string report = case_report(published());
  const std::size_t last = report.rfind('\n', report.size() - 2) + 1;
  EXPECT_EQ(report.substr(last, 28), "priced 36 of 37 timed rows: ") << report.substr(last);
  EXPECT_THAT(report, HasSubstr("not priced: llmc-124M-1xRTX5090: no efficiency curve for RTX 5090"));
  EXPECT_THAT(report, HasSubstr("arXiv:2104.04473                                                    12 of  12"));
}

TEST(PublishedCases, summaries_count_as_documented) {
  const ErrorSummary summary = summary_of({0.1, -0.3, 0.2, -0.05});
  EXPECT_DOUBLE_EQ(summary.median, 0.15);
  EXPECT_DOUBLE_EQ(summary.p95, 0.3);
  EXPECT_DOUBLE_EQ(summary.worst, 0.3);
  EXPECT_DOUBLE_EQ(summary.bias, 0.025);
  std::vector<double> hundred;
  for (int i = 1; i <= 100; ++i)
    hundred.push_back(i);
  EXPECT_DOUBLE_EQ(summary_of(hundred).p95, 95);
  EXPECT_EQ(summary_of({}).count, 0u);
}

constexpr const char* head =
    "id,source,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,recompute,"
    "iter_time_s,moe\n";

// What a table lacks is decided by the search, as a user would; what no search can decide is said.
TEST(PublishedCases, missing_fields_cost_at_most_their_row) {
  const auto cases = price_table(std::string(head) +
                                 "layout,x,48,6144,48,51200,2048,A100-80GB,64,,,,64,,bf16,,10,\n"
                                 "no batch,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,,1,bf16,full,10,\n"
                                 "no devices,x,48,6144,48,51200,2048,A100-80GB,,8,1,,64,1,bf16,full,10,\n"
                                 "moe,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,bf16,full,10,yes\n"
                                 "text,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,two,bf16,full,10,\n"
                                 "words,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,bf16,yes,10,\n"
                                 "uneven,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,60,4,bf16,full,10,\n"
                                 "comma,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,bf16,full,10,no, two\n");
  ASSERT_EQ(cases.size(), 8u);
  EXPECT_TRUE(cases[0].predicted_seconds);
  EXPECT_EQ(cases[0].price->layout.num_devices(), 64);
  EXPECT_THAT(cases[1].published.why_not, HasSubstr("global_batch_seqs is missing"));
  EXPECT_THAT(cases[2].published.why_not, HasSubstr("neither gpus nor dp"));
  EXPECT_THAT(cases[3].published.why_not, HasSubstr("experts is missing"));
  EXPECT_FALSE(cases[3].predicted_seconds);
  EXPECT_THAT(cases[4].published.why_not, HasSubstr("micro_batch is no number"));
  EXPECT_EQ(cases[5].price->layout.recompute, Recompute::full);
  EXPECT_EQ(cases[6].published.why_not, "a global batch of 60 is no multiple of dp x micro_batch = 32");
  EXPECT_THAT(cases[7].published.why_not, HasSubstr("it has 1 field more than the table has columns"));
}

// A time that no program takes is not compared; a row whose devices have no room for it is, with a remark.
TEST(PublishedCases, rows_that_no_machine_runs_are_told) {
  const std::string row = ",x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,bf16,full,";
  const auto cases = price_table(std::string(head) + "years" + row + "1e300,\n" + "nothing" + row + "0.01,\n" +
                                 "large,x,96,12288,96,51200,2048,V100-32GB,1,1,1,1,8,1,fp16,full,300,\n");
  for (const std::size_t i : {0U, 1U}) {
    EXPECT_FALSE(cases[i].predicted_seconds);
    EXPECT_TRUE(cases[i].published.timed);
  }
  EXPECT_THAT(cases[0].published.why_not, HasSubstr("in 1e+300 s it would reach"));
  EXPECT_THAT(cases[1].published.why_not, HasSubstr(" % of the peak of a100-80: is the time in seconds?"));
  EXPECT_TRUE(cases[2].predicted_seconds);
  EXPECT_THAT(cases[2].too_large, HasSubstr("reserved"));
  EXPECT_THAT(case_report(cases), HasSubstr("(predicted: does not fit"));
  for (const PricedCase& each : published())
    EXPECT_EQ(each.too_large, "") << each.published.id;
  const auto why_not = [](const std::string& columns, const std::string& fields) {
    return price_table(
               "id,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision," +
               columns + "\nx,32,4096,32,32000,2048,H100,64,8,1,8,64,1,bf16," + fields + "\n")
        .front()
        .published.why_not;
  };
  EXPECT_EQ(why_not("recompute,iter_time_s", "full,2"), "");
  EXPECT_THAT(why_not("recompute,iter_time_s", "full,2000"), HasSubstr("is the time in seconds?"));
  EXPECT_THAT(why_not("peak_tflops,mfu_pct", "989,0.4"), HasSubstr("mfu_pct is 0.4: wanted percent"));
  EXPECT_THAT(why_not("iter_time_s,model_params", "2,46.7e9"), HasSubstr("a mixture of experts?"));
  EXPECT_THAT(why_not("iter_time_s,mem_gb_per_gpu", "2,60000"), HasSubstr("is it in GiB?"));
  EXPECT_THAT(why_not("iter_time_s,vp", "2,0"), HasSubstr("vp is 0"));
}

// "FSDP2" is the second version of what shards like ZeRO-3, not its stage 2.
TEST(PublishedCases, words_are_understood_in_any_case) {
  const std::string columns =
      "id,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,zero_stage,"
      "recompute,iter_time_s\n";
  const auto layout = [&](const std::string& zero, const std::string& recompute) {
    const auto cases = price_table(columns + "x,24,2048,16,51200,2048,A100-80GB,64,1,1,64,64,1,BF16," + zero + "," +
                                   recompute + ",10\n");
    EXPECT_TRUE(cases[0].price) << zero << ", " << recompute << ": " << cases[0].published.why_not;
    return cases[0].price ? cases[0].price->layout : Layout{};
  };
  for (const char* const zero : {"FSDP", "FSDP2", "fsdp", "3", "ZeRO-3"})
    EXPECT_EQ(layout(zero, "full").zero_stage, 3) << zero;
  EXPECT_EQ(layout("ZeRO-2", "full").zero_stage, 2);
  for (const char* const none : {"none", "No", "DDP", "0"})
    EXPECT_EQ(layout(none, "full").zero_stage, 0) << none;
  for (const char* const full : {"Full", "YES", "Yes", "True", "Block"})
    EXPECT_EQ(layout("1", full).recompute, Recompute::full) << full;
  for (const char* const none : {"None", "No", "FALSE", "off"})
    EXPECT_EQ(layout("1", none).recompute, Recompute::none) << none;
  EXPECT_EQ(layout("1", "Selective").recompute, Recompute::selective);
}

// What a row says of its head holds, whatever the number of parameters suggests.
TEST(PublishedCases, a_head_is_tied_where_the_row_says_so) {
  const auto is_tied = [](const std::string& activation, const std::string& parameters, const std::string& tied) {
    return price_table(
               "layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,global_batch_seqs,iter_time_s,activation,"
               "model_params,tied_embeddings\n24,2048,16,51200,2048,A100-80GB,64,1,1,64,10," +
               activation + "," + parameters + "," + tied + "\n")[0]
        .published.problem.model.tied_embeddings;
  };
  EXPECT_TRUE(is_tied("swiglu", "", "yes"));
  EXPECT_FALSE(is_tied("gelu", "", "no"));
  for (const char* const parameters : {"1.3e9", "1.45e9"}) {
    EXPECT_TRUE(is_tied("", parameters, "yes")) << parameters;
    EXPECT_FALSE(is_tied("", parameters, "no")) << parameters;
  }
  EXPECT_TRUE(is_tied("gelu", "", ""));
  EXPECT_FALSE(is_tied("swiglu", "", ""));
}

TEST(PublishedCases, contradictions_and_unknown_words_are_not_priced) {
  const auto cases = price_table(std::string(head) +
                                 "no time,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,bf16,full,0,\n"
                                 "negative,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,bf16,full,-3,\n"
                                 "int4,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,int4,full,10,\n"
                                 "upper case,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,BF16,full,10,\n"
                                 "words,x,48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,bf16,Sometimes,10,\n"
                                 "degrees,x,48,6144,48,51200,2048,A100-80GB,64,8,1,4,64,1,bf16,full,10,\n"
                                 "nothing,x,48,6144,48,51200,2048,A100-80GB,64,8,1,0,64,1,bf16,full,10,\n");
  ASSERT_EQ(cases.size(), 7u);
  for (const std::size_t row : {0u, 1u, 2u, 4u, 5u, 6u}) {
    EXPECT_FALSE(cases[row].predicted_seconds) << cases[row].published.id;
    EXPECT_TRUE(cases[row].published.timed) << cases[row].published.id;
  }
  EXPECT_EQ(cases[0].published.why_not, "iter_time_s is 0: wanted more than 0");
  EXPECT_EQ(cases[1].published.why_not, "iter_time_s is -3: wanted more than 0");
  EXPECT_EQ(cases[2].published.why_not, "precision int4 is unknown (fp8, bf16, fp16, tf32, fp32)");
  EXPECT_EQ(cases[3].price->layout.precision, Precision::bf16);
  EXPECT_EQ(cases[4].published.why_not, "recompute Sometimes is unknown (full, selective, none)");
  EXPECT_EQ(cases[5].published.why_not, "tp x pp x cp x dp = 32 are not 64 devices");
  EXPECT_EQ(cases[6].published.why_not, "dp is 0: wanted 1 or more, or nothing where it is not known");
  EXPECT_THAT(case_report(cases), HasSubstr("not priced: int4: precision int4 is unknown"));
  EXPECT_THAT(case_report(cases), HasSubstr("priced 1 of 7 timed rows"));
}

TEST(PublishedCases, a_time_that_contradicts_its_rate_is_not_taken) {
  const std::string columns =
      "id,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,recompute,"
      "iter_time_s,tokens_per_s_per_gpu\n";
  const std::string shape = "48,6144,48,51200,2048,A100-80GB,64,8,1,8,64,1,bf16,full,";  // 2048 tokens a device
  const auto cases = price_table(columns + "agree," + shape + "2,1000\n" + "contradict," + shape + "2,93000\n");
  EXPECT_EQ(cases[0].published.measured_seconds, 2) << cases[0].published.why_not;
  EXPECT_EQ(cases[1].published.why_not, "iter_time_s is 2, but tokens_per_s_per_gpu makes it 0.02202 s");
}

// 72 B L s h^2 (1 + s / 6h + V / 12hL) and 96 B s L h^2 (1 + s / 6h + V / 16Lh), over 64 devices.
TEST(PublishedCases, times_follow_from_flops_whose_kind_is_told) {
  const std::string columns =
      "id,layers,hidden,heads,vocab,seq_len,gpu,peak_tflops,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,"
      "recompute,achieved_tflops_per_gpu,mfu_pct,flop_count\n";
  const std::string shape = "48,6144,48,51200,2048,A100-80GB,312,64,8,1,8,64,1,bf16,full,";
  const auto cases = price_table(columns + "model," + shape + "150,,MODEL_EQ7\n" + "hardware," + shape +
                                 "150,,HW_EQ3(recompute counted)\n" +         //
                                 "mfu," + shape + ",50,\n" +                  //
                                 "untold," + shape + "150,,\n" +              //
                                 "other," + shape + "150,,paper-defined\n" +  //
                                 "none," + shape + "0,,MODEL_EQ7\n");
  ASSERT_EQ(cases.size(), 6u);
  const double b = 64, l = 48, s = 2048, h = 6144, v = 51200;
  const double model = 72 * b * l * s * h * h * (1 + s / (6 * h) + v / (12 * h * l));
  const double hardware = 96 * b * l * s * h * h * (1 + s / (6 * h) + v / (16 * h * l));
  EXPECT_NEAR(cases[0].published.measured_seconds, model / (64 * 150e12), 1e-9);
  EXPECT_NEAR(cases[1].published.measured_seconds, hardware / (64 * 150e12), 1e-9);
  EXPECT_NEAR(cases[2].published.measured_seconds, model / (64 * 156e12), 1e-9);
  for (const std::size_t row : {0u, 1u, 2u})
    EXPECT_TRUE(cases[row].published.timed && cases[row].predicted_seconds) << cases[row].published.why_not;
  EXPECT_THAT(cases[3].published.why_not, HasSubstr("does not say which FLOP"));
  EXPECT_THAT(cases[4].published.why_not, HasSubstr("paper-defined"));
  EXPECT_THAT(cases[5].published.why_not, HasSubstr("more than 0"));
  EXPECT_THAT(case_report(cases), HasSubstr("not priced: untold: "));
}

// 3 x (2 x matrix elements + 4 T C L) a token: grouped queries and a gated feed-forward have their own elements.
TEST(PublishedCases, times_follow_from_mfu_for_any_block) {
  const std::string columns =
      "id,source,layers,hidden,heads,kv_heads,ffn_hidden,vocab,seq_len,gpu,peak_tflops,gpus,tp,pp,dp,global_batch_seqs,"
      "micro_batch,precision,recompute,zero_stage,achieved_tflops_per_gpu,mfu_pct\n";
  const std::string shape = "arXiv:2407.00001,32,4096,32,8,14336,128256,8192,H100-80GB,989,64,1,1,64,128,1,bf16,";
  const auto cases = price_table(columns + "mfu," + shape + "full,3,,40\n" +  //
                                 "nothing to count twice," + shape + "none,3,400,\n");
  ASSERT_EQ(cases.size(), 2u);
  const double h = 4096, layers = 32, s = 8192;
  const double matrices = layers * (2 * h * h + 2 * h * 1024 + 3 * h * 14336) + 128256 * h;
  const double flops = 128 * s * (6 * matrices + 12 * layers * h * s);
  EXPECT_NEAR(cases[0].published.measured_seconds, flops / (64 * 0.4 * 989e12), 1e-9) << cases[0].published.why_not;
  EXPECT_NEAR(cases[1].published.measured_seconds, flops / (64 * 400e12), 1e-9) << cases[1].published.why_not;
}

// A usual vocabulary and the device's own peak; a row that tells its speed and cannot be priced counts as timed.
TEST(PublishedCases, times_follow_from_mfu_without_vocabulary_and_peak) {
  const std::string columns =
      "id,layers,hidden,heads,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,recompute,mfu_pct\n";
  const auto cases = price_table(columns + "priced,48,6144,48,2048,A100-80GB,64,8,1,8,64,1,bf16,full,50\n" +
                                 "no curve,48,6144,48,2048,TPU v4,64,8,1,8,64,1,bf16,full,50\n" +
                                 "no batch,48,6144,48,2048,A100-80GB,64,8,1,8,,1,bf16,full,50\n" +
                                 "no shape,,6144,48,2048,A100-80GB,64,8,1,8,64,1,bf16,full,50\n");
  ASSERT_EQ(cases.size(), 4u);
  const double h = 6144, l = 48, s = 2048;
  const double model = 72 * 64 * l * s * h * h * (1 + s / (6 * h) + 50304 / (12 * h * l));
  EXPECT_NEAR(cases[0].published.measured_seconds, model / (64 * 156e12), 1e-9) << cases[0].published.why_not;
  EXPECT_EQ(cases[1].published.why_not, "no efficiency curve for TPU v4");
  EXPECT_EQ(cases[2].published.why_not, "global_batch_seqs is missing");
  for (const std::size_t row : {0u, 1u, 2u})
    EXPECT_TRUE(cases[row].published.timed) << row;
  EXPECT_FALSE(cases[3].published.timed);  // no speed of anything
  EXPECT_THAT(case_report(cases), HasSubstr("priced 1 of 3 timed rows"));
}

TEST(PublishedCases, under_a_pipeline_sharded_gradients_and_weights_are_exchanged_once_a_step) {
  const std::string columns =
      "id,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,recompute,"
      "zero_stage,iter_time_s\n";
  const std::string shape = "48,6144,48,51200,2048,H100-80GB,64,8,4,2,64,1,bf16,full,";
  const auto cases =
      price_table(columns + "one," + shape + "1,10\n" + "two," + shape + "2,10\n" + "three," + shape + "3,10\n");
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[1].predicted_seconds, cases[0].predicted_seconds);
  EXPECT_EQ(cases[2].predicted_seconds, cases[0].predicted_seconds);
  EXPECT_EQ(cases[2].predicted_bytes, cases[0].predicted_bytes);
}

TEST(PublishedCases, a_table_that_cannot_be_priced_names_what_it_lacks) {
  const auto refusal = [](const std::string& text) {
    try {
      read_cases(text, "table.csv");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      return error.report();
    }
    ADD_FAILURE() << "it was read: " << text;
    return ErrorReport{};
  };
  EXPECT_EQ(refusal("").got, "an empty file");
  EXPECT_EQ(refusal(head).what, "the table has no rows");
  EXPECT_EQ(
      refusal("id,layers,hidden,seq_len,gpus\na,1,2,3,4\n").what,
      "the table lacks columns: gpu, iter_time_s or tokens_per_s_per_gpu or achieved_tflops_per_gpu or mfu_pct or "
      "mem_gb_per_gpu");
  std::string semicolons = head;
  std::replace(semicolons.begin(), semicolons.end(), ',', ';');
  const ErrorReport report = refusal(semicolons + "a;b\n");
  EXPECT_THAT(report.what, HasSubstr("layers, hidden, seq_len, gpu, gpus or dp"));
  EXPECT_THAT(report.wanted, HasSubstr("commas"));
  EXPECT_EQ(read_cases("\xef\xbb\xbf"
                       "layers,hidden,seq_len,gpu,gpus,iter_time_s\n1,2,3,x,5,6\n",
                       "t")
                .cases.size(),
            1u);
}

// One column more, others in another order, line ends of Windows, blank lines, quotes, other names of devices.
TEST(PublishedCases, tables_of_other_authors_are_read) {
  const std::string table =
      "gpu,iter_time_s,gpus,seq_len,hidden,layers,global_batch_seqs,precision,cluster_name,id,source\r\n"
      "\r\n"
      "NVIDIA A100-SXM4-80GB,10,64,2048,6144,48,64,bf16,x,one,\"A report, part 1\"\r\n"
      "nvidia h100 80gb hbm3,10,64,2048,6144,48,64,BF16,x,two,Some blog 2024 Table 1\r\n"
      ",,,,,,,,,,\r\n"
      "H200 SXM,n/a,64,2048,6144,48,64,bf16,x,three,Some paper 2024 Table 1\r\n"
      "H200 SXM,3.5 s,64,2048,6144,48,64,bf16,x,four,Some paper 2024 Table 1\r\n"
      "TPU v5p,10,64,2048,6144,48,64,bf16,x,five,Some paper 2024 Table 1\r\n"
      "a100,10,64,,6144,48,64,bf16,x,six,";
  const PublishedTable read = read_cases(table, "table.csv");
  EXPECT_EQ(read.unknown_columns, std::vector<std::string>{"cluster_name"});
  ASSERT_EQ(read.cases.size(), 6u);
  std::vector<PricedCase> cases;
  for (const PublishedCase& each : read.cases)
    cases.push_back(price_case(each));
  EXPECT_EQ(cases[0].price->layout.num_devices(), 64) << cases[0].published.why_not;
  EXPECT_EQ(cases[0].published.problem.cluster.device.name, "a100-80");
  EXPECT_EQ(cases[1].published.problem.cluster.device.name, "h100");
  EXPECT_EQ(cases[2].published.why_not, "nothing is measured: no time, no rate and no memory is given");
  EXPECT_EQ(cases[3].published.why_not, "iter_time_s is no number: 3.5 s");
  EXPECT_EQ(cases[4].published.why_not, "no efficiency curve for TPU v5p");
  EXPECT_EQ(cases[5].published.why_not, "seq_len is missing");
  const std::string report = case_report(cases);
  for (const PricedCase& each : cases)  // a row is compared, or has a reason
    EXPECT_TRUE(each.predicted_seconds || report.find("not priced: " + each.published.id + ": ") != std::string::npos)
        << each.published.id;
  EXPECT_THAT(report, HasSubstr("\nSome paper 2024 Table 1 "));
  EXPECT_THAT(report, HasSubstr("\nSome blog 2024 Table 1 "));
  EXPECT_THAT(report, HasSubstr("0 of   2: none is priced\n"));
  EXPECT_THAT(report, Not(HasSubstr("0 of   2: median")));
  EXPECT_THAT(report, HasSubstr("\nno source given "));
  EXPECT_THAT(report, HasSubstr("time by source: of the timed rows how many are priced"));
}

TEST(PublishedCases, unknown_columns_are_named_with_what_they_may_mean) {
  const PublishedTable read =
      read_cases("layers,hidden,seq_len,gpu,gpus,iter_time_s,micro_batchs,tp\n1,2,3,x,5,6,7,8\n", "t");
  EXPECT_EQ(read.unknown_columns, std::vector<std::string>{"micro_batchs (is it micro_batch?)"});
}

TEST(PublishedCases, documents_are_told_apart) {
  const auto origin = [](const std::string& source) {
    return read_case(parse_csv("source\n\"" + source + "\"\n", "t").rows[0]).origin;
  };
  EXPECT_EQ(origin("arXiv:2104.04473 Table 1; run_table_1.sh"), "arXiv:2104.04473");
  EXPECT_EQ(origin("arXiv:2104.04473 Fig. 11, digitized"), "arXiv:2104.04473");
  EXPECT_EQ(origin("owner/name@abc:tests/cases/a/b.json"), "owner/name@abc:tests/cases");
  EXPECT_EQ(origin("owner/name@abc:README.md section 2"), "owner/name@abc:README.md");
  EXPECT_EQ(origin("owner/name README Sep-2020, images"), "owner/name README Sep-2020, images");
  EXPECT_EQ(origin("owner/name README May-2024"), "owner/name README May-2024");
}

}  // namespace
