// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Conversations, packed into rows, have the loss that they have one by one in transformers (chat_reference.py).
#include <gtest/gtest.h>

#include "io/pack/conversations.hpp"
#include "io/pack/pack_conversations.hpp"
#include "tests/io/text/chat_fixture.hpp"
#include "tests/support/world.hpp"
#include "tests/training/chat_reference.hpp"
#include "tests/training/hugging_face_models.hpp"
#include "training/loop/evaluation.hpp"

namespace espalier::test {

TEST(Conversations, PackedHaveTheLossThatTheyHaveInTransformers) {
  const TemporaryDirectory directory;
  TransformersReference reference{};
  reference.config = chat_config;
  write_model(directory / "model", reference, ScalarType::fp64);
  const Path checkpoint =
      import_hugging_face(HuggingFaceWeights(directory / "model"), directory / "model", directory / "import");
  write_chat_tokenizer(directory.path());
  std::string lines;
  for (const int i : chat_conversations)
    lines += nlohmann::json{{"messages", chat_fixture()["conversations"][static_cast<std::size_t>(i)]}}.dump() + "\n";
  write_bytes(directory / "chats.jsonl", lines);
  constexpr Index length = 120;
  const ConversationSummary packed = pack_conversations(
      {directory / "chats.jsonl"}, *load_tokenizer(directory.path().string()),
      load_chat_template(directory.path().string()), directory / "chats.bin", "", {.sequence_length = length});
  EXPECT_EQ(packed.train.num_rows, 2);
  EXPECT_EQ(packed.train.num_targets, chat_counted);

  LoadedModel<Fp64> model(CheckpointReader(checkpoint), 0);
  for (const Index micro_batch : {1, 2}) {
    std::vector<TokenFile> files;
    files.emplace_back(directory / "chats.bin");
    const SequentialLoader loader(
        std::move(files),
        {.micro_batch_size = micro_batch, .sequence_length = length, .vocab_size = 608, .separate_documents = true}, 0);
    model.allocate_activations(micro_batch, length, true);
    const std::optional<MeanLoss> loss =
        evaluate_loss(model, EvaluationData::of(loader), world(), [](Index, Index) { return false; });
    ASSERT_TRUE(loss);
    EXPECT_EQ(loss->valid_tokens, chat_counted);
    EXPECT_NEAR(loss->loss, chat_loss, 1e-10);
  }
}

}  // namespace espalier::test
