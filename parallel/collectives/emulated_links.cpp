// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/emulated_links.hpp"

#include <memory>

#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/message_hook.hpp"

namespace espalier {
namespace {

class EmulatedNetwork : public MessageHook {
 public:
  explicit EmulatedNetwork(const EmulatedLinks& links) : links_(links) {}

  bool sets_arrivals() const override { return true; }
  double arrives_at(const Message& message) override {
    return queue_.send(links_, links_.same_node(message.from, message.to),
                       static_cast<double>(message.bytes) * links_.scale(message.communicator), message.sent_at) +
           links_.delay(message.from, message.to);
  }

 private:
  EmulatedLinks links_;
  LinkQueue queue_;
};

}  // namespace

double EmulatedLinks::scale(std::string_view communicator) const {
  const auto found = scales.find(communicator.substr(0, communicator.find(' ')));
  return found == scales.end() ? 1 : found->second;
}

void emulate_links(const Communicator& world, const EmulatedLinks& links) {
  CommunicationContext& context = *world.state()->context;
  context.message_hook = links.on() ? std::make_shared<EmulatedNetwork>(links) : nullptr;
  context.wait.always_sleeps = links.on();
}

}  // namespace espalier
