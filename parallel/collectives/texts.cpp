// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/texts.hpp"

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/messages.hpp"

namespace espalier {

std::string broadcast_text(const Communicator& communicator, std::string text, int root) {
  auto size = static_cast<Index>(text.size());
  broadcast(communicator, std::span<Index>(&size, 1), root);
  text.resize(static_cast<std::size_t>(size));
  broadcast(communicator, std::span<char>(text.data(), text.size()), root);
  return text;
}

std::vector<std::string> broadcast_texts(const Communicator& communicator, const std::vector<std::string>& texts,
                                         int root) {
  std::string joined;
  std::vector<Index> sizes;
  for (const std::string& text : texts) {
    joined += text;
    sizes.push_back(static_cast<Index>(text.size()));
  }
  auto count = static_cast<Index>(sizes.size());
  broadcast(communicator, std::span<Index>(&count, 1), root);
  sizes.resize(static_cast<std::size_t>(count));
  broadcast(communicator, std::span<Index>(sizes), root);
  joined = broadcast_text(communicator, std::move(joined), root);
  std::vector<std::string> result;
  std::size_t begin = 0;
  for (const Index size : sizes) {
    result.push_back(joined.substr(begin, static_cast<std::size_t>(size)));
    begin += static_cast<std::size_t>(size);
  }
  return result;
}

std::vector<std::string> gather_texts(const Communicator& communicator, const std::string& text) {
  const auto own_size = static_cast<Index>(text.size());
  std::vector<Index> sizes(static_cast<std::size_t>(communicator.size()));
  all_gather(communicator, std::span<Index>(sizes), std::span<const Index>(&own_size, 1));
  std::vector<std::string> texts;
  MessageSet messages(communicator);
  if (communicator.rank() == 0) {
    for (const Index size : sizes)
      texts.emplace_back(static_cast<std::size_t>(size), '\0');
    texts[0] = text;
    for (int peer = 1; peer < communicator.size(); ++peer) {
      std::string& theirs = texts[static_cast<std::size_t>(peer)];
      messages.receive(theirs.data(), theirs.size(), peer, tags::gather_texts);
    }
  } else {
    messages.send(text.data(), text.size(), 0, tags::gather_texts);
  }
  messages.wait("gather_texts");
  return texts;
}

}  // namespace espalier
