// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Tokens per second of forward and backward on documents of a tenth of the sequence, joined and separate, in turns; and
// what the work that separate documents skip predicts: the time of joined ones less the skipped share of attention's,
// which is timed alone.
//     bench_documents [SEQUENCE_LENGTH [ROUNDS]]
#include <Kokkos_Core.hpp>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/kokkos_compat.hpp"
#include "core/median.hpp"
#include "core/stopwatch.hpp"
#include "models/decoder.hpp"

namespace {

using namespace espalier;
using P = Fp32;
using T = Compute<P>;

// A model, and one micro-batch of a sequence of documents.
class Bench {
 public:
  explicit Bench(Index length)
      : config_{.vocab_size = 256,
                .max_sequence_length = length,
                .num_layers = 6,
                .hidden_size = 384,
                .num_heads = 6,
                .ffn_hidden_size = 1536},
        joined_(parameters_, config_),
        separate_(other_parameters_, config_),
        tokens_(static_cast<std::size_t>(length)),
        positions_(tokens_.size()) {
    const Index document = std::max<Index>(1, length / 10);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i] = static_cast<TokenId>(i * 7919 % 256);
      positions_[i] = static_cast<int>(static_cast<Index>(i) % document);
      seen_keys_ += positions_[i] + 1;
    }
    for (ParameterStore<T>* const parameters : {&parameters_, &other_parameters_}) {
      parameters->allocate();
      parameters->initialize(exec_, 1);
    }
    joined_.plan_activations(1, length, ActivationMemory{});
    separate_.plan_activations(1, length, ActivationMemory{.separate_documents = true});
  }

  double joined_seconds() { return seconds_of(joined_, nullptr); }
  double separate_seconds() { return seconds_of(separate_, positions_.data()); }
  // Of all layers, forward and backward, on joined documents.
  double attention_seconds() {
    const AttentionShape shape{1, length(), config_.num_heads, config_.head_size(), config_.kv_heads()};
    const auto rows = [&](Index columns) { return Tensor<T, 2>("espalier::other::bench", length(), columns); };
    const auto qkv = rows(shape.qkv_columns()), dqkv = rows(shape.qkv_columns());
    const auto out = rows(config_.hidden_size), dout = rows(config_.hidden_size);
    const Tensor<State<T>, 1> log_sum_exp("espalier::other::bench", length() * shape.num_heads);
    return seconds([&] {
      for (Index layer = 0; layer < config_.num_layers; ++layer) {
        attention_forward<T>(exec_, out, log_sum_exp, qkv, shape);
        attention_backward<T>(exec_, dqkv, dout, out, log_sum_exp, qkv, shape);
      }
    });
  }
  double attention_share() const {
    return seen_keys_ /
           AttentionShape{.batch = 1, .sequence_length = length(), .num_heads = 1, .head_size = 1, .num_kv_heads = 1}
               .seen_keys();
  }
  Index length() const { return static_cast<Index>(tokens_.size()); }

 private:
  template <class F>
  double seconds(const F& f) {
    compat::fence(exec_, "espalier::bench: what was before is done");
    const Stopwatch stopwatch;
    f();
    compat::fence(exec_, "espalier::bench: done before the clock stops");
    return stopwatch.seconds();
  }
  double seconds_of(Decoder<P>& model, const int* positions) {
    return seconds([&] {
      model.begin_gradients(exec_);
      model.forward(exec_, 0, {tokens_.data(), tokens_.data(), 0, positions}, 1.0 / static_cast<double>(length()));
      model.backward(exec_, 0);
    });
  }

  ExecSpace exec_;
  ModelConfig config_;
  ParameterStore<T> parameters_, other_parameters_;
  Decoder<P> joined_, separate_;
  std::vector<TokenId> tokens_;
  std::vector<int> positions_;  // in documents
  double seen_keys_ = 0;
};

void run(Index length, int rounds) {
  Bench bench(length);
  std::vector<double> joined, separate, attention;
  for (int round = 0; round <= rounds; ++round) {  // the first one touches memory for the first time
    const double times[] = {bench.joined_seconds(), bench.separate_seconds(), bench.attention_seconds()};
    if (round == 0)
      continue;
    joined.push_back(times[0]);
    separate.push_back(times[1]);
    attention.push_back(times[2]);
  }
  const double whole = median_of(joined), skipped = (1 - bench.attention_share()) * median_of(attention);
  const double measured = whole / median_of(separate), predicted = whole / (whole - skipped);
  std::printf("%td tokens in documents of %td: queries see %.1f %% of the keys, attention was %.0f %% of the time\n",
              bench.length(), bench.length() / 10, 100 * bench.attention_share(), 100 * median_of(attention) / whole);
  std::printf("joined   %10.0f tokens/s\nseparate %10.0f tokens/s: %.2f times as many, %.2f predicted (%+.0f %%)\n",
              static_cast<double>(length) / whole, static_cast<double>(length) / median_of(separate), measured,
              predicted, 100 * (measured / predicted - 1));
}

}  // namespace

int main(int argc, char** argv) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  run(argc > 1 ? std::atol(argv[1]) : 4096, argc > 2 ? std::atoi(argv[2]) : 5);
}
