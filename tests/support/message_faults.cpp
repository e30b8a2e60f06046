// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A library to preload into `espalier`: a rank that stops, dies, leaves or is late just before it sends a message or
// begins a collective of MPI's, so that others wait for it there. Settings in the environment:
//
//   ESPALIER_MESSAGE_FAULT   stop (SIGSTOP), kill (SIGKILL), exit (exit(0)) or delay (6 s). Nothing happens without it
//   ESPALIER_FAULT_RANK      of this rank
//   ESPALIER_FAULT_AT        before which of its calls, from 1
//   ESPALIER_FAULT_CALL      of this function, such as MPI_Ialltoallv; else of any of them
//   ESPALIER_FAULT_RUN       counting starts with the first call of a step of the run in this directory, as a launch
//                            measures links, and sends more messages on a busy machine
//   ESPALIER_FAULT_STEP      in this step, or a later one
//   ESPALIER_FAULT_MARK      a file that is made when the fault strikes
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "parallel/observe/rank_progress.hpp"

namespace {

std::string_view setting(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// What a rank keeps in the directory of its run says in which step it is. The file may be an earlier launch's.
bool is_in_step(int rank, const std::string& run, long step) {
  constexpr long header_bytes = 64;  // of io/records/progress_file.cpp
  char name[32];
  std::snprintf(name, sizeof name, "/state/rank-%05d.position", rank);
  std::FILE* const file = std::fopen((run + name).c_str(), "rb");
  if (file == nullptr)
    return false;
  espalier::RankProgress progress;
  const bool is_read =
      std::fseek(file, header_bytes, SEEK_SET) == 0 && std::fread(&progress, sizeof progress, 1, file) == 1;
  std::fclose(file);
  return is_read && progress.pid == ::getpid() && progress.step >= step;
}

void strike_if_due(std::string_view call) {
  static const std::string_view fault = setting("ESPALIER_MESSAGE_FAULT");
  static const std::string_view wanted = setting("ESPALIER_FAULT_CALL");
  static const bool guilty = setting("PMI_RANK") == setting("ESPALIER_FAULT_RANK") ||
                             setting("OMPI_COMM_WORLD_RANK") == setting("ESPALIER_FAULT_RANK");
  static const long at = std::atol(std::getenv("ESPALIER_FAULT_AT") ? std::getenv("ESPALIER_FAULT_AT") : "0");
  static const std::string run(setting("ESPALIER_FAULT_RUN"));
  static bool counts = run.empty();
  static long count = 0;
  if (fault.empty() || !guilty || (!wanted.empty() && wanted != call))
    return;
  if (!counts)
    counts =
        is_in_step(std::atoi(std::getenv("ESPALIER_FAULT_RANK")), run, std::atol(std::getenv("ESPALIER_FAULT_STEP")));
  if (!counts || ++count != at)
    return;
  if (const char* const mark = std::getenv("ESPALIER_FAULT_MARK"))
    if (std::FILE* const file = std::fopen(mark, "w"))
      std::fclose(file);
  if (fault == "exit")
    std::exit(0);
  if (fault == "delay")
    ::sleep(6);
  else
    ::kill(::getpid(), fault == "stop" ? SIGSTOP : SIGKILL);
}

template <class Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

// Each is the function of that name, behind the fault.
#define ESPALIER_INTERPOSE(name, parameters, arguments)                  \
  extern "C" int name parameters {                                       \
    static int(*const next) parameters = next_of<int parameters>(#name); \
    strike_if_due(#name);                                                \
    return next arguments;                                               \
  }

ESPALIER_INTERPOSE(MPI_Isend,
                   (const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                    MPI_Request* request),
                   (data, count, type, peer, tag, comm, request))
ESPALIER_INTERPOSE(MPI_Ialltoallv,
                   (const void* input, const int* out, const int* out_starts, MPI_Datatype out_type, void* output,
                    const int* in, const int* in_starts, MPI_Datatype in_type, MPI_Comm comm, MPI_Request* request),
                   (input, out, out_starts, out_type, output, in, in_starts, in_type, comm, request))
ESPALIER_INTERPOSE(MPI_Iallgatherv,
                   (const void* input, int count, MPI_Datatype type, void* output, const int* counts, const int* starts,
                    MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request),
                   (input, count, type, output, counts, starts, out_type, comm, request))
ESPALIER_INTERPOSE(MPI_Ibcast,
                   (void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request),
                   (data, count, type, root, comm, request))
ESPALIER_INTERPOSE(MPI_Ibarrier, (MPI_Comm comm, MPI_Request* request), (comm, request))
