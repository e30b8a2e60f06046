// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/published_model.hpp"

#include <algorithm>
#include <cmath>

#include "core/scalars.hpp"
#include "io/strings.hpp"
#include "tests/published/published_program.hpp"

namespace espalier {
namespace {

void set_llama(ModelConfig& model, bool is_llama) {
  model.activation = is_llama ? "swiglu" : "gelu";
  model.norm = is_llama ? Norm::rmsnorm : Norm::layernorm;
}

// Feed-forward gated or not, head tied or not: what the row says; else what comes nearest to the published number of
// parameters; where that cannot tell, what the shape suggests.
void decide_variant(ModelConfig& model, const CsvRow& row) {
  require_word(row, "activation", {"gelu", "swiglu"});
  const bool is_told = row.has("activation");
  const bool odd_ffn = model.ffn_hidden_size != 4 * model.hidden_size;
  set_llama(model, is_told ? row.text("activation") == "swiglu" : odd_ffn);
  const std::optional<bool> told_tied = yes_or_no(row, "tied_embeddings");
  model.tied_embeddings = told_tied.value_or(!model.gated());
  model.bias = !model.gated();
  const std::optional<double> published = row.number("model_params");
  if (!published || is_told)
    return;
  ModelConfig best = model;
  double distance = 0.02;  // what rounding to "7.1B" may hide
  const double own = std::abs(to_double(num_parameters(model)) / *published - 1);
  if (own < distance)
    return;
  distance = own;
  for (const bool gated : {false, true})
    for (const bool tied : {true, false}) {
      if (tied != told_tied.value_or(tied))
        continue;
      ModelConfig other = model;
      set_llama(other, gated);
      other.tied_embeddings = tied;
      const double off = std::abs(to_double(num_parameters(other)) / *published - 1);
      if (off < distance - 0.02) {
        best = other;
        distance = off;
      }
    }
  model = best;
}

// A vocabulary that is not published: the smallest usual one that explains the number of parameters.
constexpr Index default_vocabulary = 50304;  // GPT-2's, padded to a multiple of 128

Index usual_vocabulary(ModelConfig model, const CsvRow& row) {
  const std::optional<double> published = row.number("model_params");
  constexpr double rounding = 0.02;
  if (published)
    for (const Index vocabulary : {Index{32000}, Index{50304}, Index{100352}, Index{128256}, Index{256000}}) {
      model.vocab_size = vocabulary;
      if (std::abs(to_double(num_parameters(model)) / *published - 1) < rounding)
        return vocabulary;
    }
  return default_vocabulary;
}

}  // namespace

ModelConfig published_model(const CsvRow& row, const Implementation& implementation, std::string& why_not) {
  ModelConfig model{.max_sequence_length = 0, .positions = Positions::rotary};  // no rows of positions are counted
  const auto need = [&](const std::string& column) {
    const std::optional<Index> value = row.whole(column);
    if (!value && why_not.empty())
      why_not = column + " is missing";
    return value.value_or(0);
  };
  model.num_layers = need("layers");
  model.hidden_size = need("hidden");
  if (!why_not.empty())
    return model;
  model.num_heads = row.whole("heads").value_or(std::max<Index>(1, model.hidden_size / 128));
  model.num_kv_heads = row.whole("kv_heads").value_or(0);
  model.ffn_hidden_size = row.whole("ffn_hidden").value_or(4 * model.hidden_size);
  model.vocab_size = row.whole("vocab").value_or(default_vocabulary);
  model.window = row.whole("window").value_or(0);
  model.full_layers = row.whole("full_layers").value_or(0);
  model.head_dim = row.whole("head_dim").value_or(0);
  if (!row.has("head_dim") && model.num_heads > 0 && model.hidden_size % model.num_heads != 0)  // heads are rounded up
    model.head_dim = model.hidden_size / model.num_heads + 1;
  const Experts& experts = implementation.experts;
  if (experts.count > 0)
    model.ffn_hidden_size = experts.of_token * row.whole("expert_ffn").value_or(model.ffn_hidden_size);
  decide_variant(model, row);
  if (experts.count > 0 && !row.has("activation"))
    set_llama(model, true);
  if (!row.has("vocab"))
    model.vocab_size = usual_vocabulary(model, row);
  model.max_sequence_length = row.whole("seq_len").value_or(0);
  if (!model.gated() && model.max_sequence_length > 0)
    model.positions = Positions::learned;
  const double dropout = implementation.fused_attention ? 0 : 0.1;
  model.embedding_dropout = model.attention_dropout = model.residual_dropout = dropout;
  if (const std::vector<BrokenRule> broken = broken_rules(model); !broken.empty())
    why_not = broken.front().sentence();
  return model;
}

}  // namespace espalier
