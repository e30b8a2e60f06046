// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/text_printer.hpp"

namespace espalier {

void TextPrinter::print(std::vector<GeneratedText>& texts) {
  for (; at_ < texts.size(); ++at_) {
    GeneratedText& text = texts[at_];
    if (!line_ && texts.size() > 1)  // as head and tail do
      print_answer("{}==> {} of {} <==\n", at_ == 0 ? "" : "\n", at_ + 1, texts.size());
    if (!line_)
      line_.emplace();
    line_->write(text.take());
    if (!text.is_complete())
      return;
    line_->finish();
    line_.reset();
  }
}

}  // namespace espalier
