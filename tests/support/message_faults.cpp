// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A library to preload into `espalier`: a rank that stops, dies or leaves just before it sends a message, so that
// others wait for it there. Settings in the environment:
//
//   ESPALIER_MESSAGE_FAULT   stop (SIGSTOP), kill (SIGKILL) or exit (exit(0)). Nothing happens without it
//   ESPALIER_FAULT_RANK      of this rank
//   ESPALIER_FAULT_AT        before which of its messages, from 1
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace {

std::string_view setting(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

void strike_if_due() {
  static const std::string_view fault = setting("ESPALIER_MESSAGE_FAULT");
  static const bool guilty = setting("PMI_RANK") == setting("ESPALIER_FAULT_RANK");
  static const long at = std::atol(std::getenv("ESPALIER_FAULT_AT") ? std::getenv("ESPALIER_FAULT_AT") : "0");
  static long count = 0;
  if (fault.empty() || !guilty || ++count != at)
    return;
  if (fault == "exit")
    std::exit(0);
  ::kill(::getpid(), fault == "stop" ? SIGSTOP : SIGKILL);
}

}  // namespace

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm communicator,
                         MPI_Request* request) {
  using Function = int(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
  static Function* const next = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "MPI_Isend"));
  strike_if_due();
  return next(data, count, type, peer, tag, communicator, request);
}
