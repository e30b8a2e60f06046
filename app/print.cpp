// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/print.hpp"

#include <unistd.h>

#include <cstdio>

#include "core/printable_text.hpp"

namespace espalier {
namespace {

void put(std::string_view text, std::FILE* stream) { std::fwrite(text.data(), 1, text.size(), stream); }

}  // namespace

void print_text(std::string_view text) { put(printable_text(text), stdout); }

void print_text_to_stderr(std::string_view text) {
  std::fflush(stdout);  // in one file, both stay in the order in which they were printed
  put(printable_text(text), stderr);
}

ModelText::ModelText() : shows_(isatty(STDOUT_FILENO) == 1) {}

void ModelText::write(std::string_view piece) {
  if (shows_) {
    pending_ += piece;
    const std::size_t whole = pending_.size() - unfinished_bytes(pending_);
    print_text(std::string_view(pending_).substr(0, whole));
    pending_.erase(0, whole);
  } else {
    put(piece, stdout);
  }
  std::fflush(stdout);
}

void ModelText::finish() {
  print_text(std::exchange(pending_, {}) + '\n');
  std::fflush(stdout);
}

}  // namespace espalier
