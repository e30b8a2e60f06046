// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What nohup asks for: SIGHUP is ignored. UCX, below MPI, puts a handler of its own in the place of that while it is
// loaded, so we look before any library is initialised, and put it back after. A program that we exec inherits it.
#include <signal.h>

#ifdef __ELF__
namespace {

bool hangups_are_ignored = false;

void look() {
  struct sigaction action = {};
  hangups_are_ignored = sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

__attribute__((section(".preinit_array"), used)) void (*const look_first)() = look;

__attribute__((constructor)) void put_back() {
  if (hangups_are_ignored)
    signal(SIGHUP, SIG_IGN);
}

}  // namespace
#endif
