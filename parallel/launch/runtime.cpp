// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch/runtime.hpp"

#include <fmt/format.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "core/memory_ledger.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/mpi_check.hpp"
#include "parallel/launch/device_selection.hpp"
#include "parallel/launch/failure.hpp"
#include "parallel/launch/host_cores.hpp"
#include "parallel/launch/launch_environment.hpp"
#include "parallel/launch/openmp_threads.hpp"
#include "parallel/launch/process_limits.hpp"
#include "parallel/mesh/host_ranks.hpp"
#include "parallel/observe/job_clock.hpp"

namespace espalier {
namespace {

/// One block for all: among processes that are no job, process 0 speaks, and its launcher ends the others meanwhile.
void refuse_other_launchers(int world_size) {
  const LaunchedRank launched = launched_rank();
  if (launched.rank > 0 && world_size == 1)
    std::this_thread::sleep_for(std::chrono::seconds(3));
  require_own_launcher(launched, world_size, mpi_library_version());
}

/// Kokkos::initialize, whose exceptions say as little as "stoi".
void initialize_kokkos(int& argc, char**& argv) {
  std::string arguments;
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with("--kokkos-"))
      arguments += fmt::format("{}{}", arguments.empty() ? "" : " ", argv[i]);
  try {
    Kokkos::initialize(argc, argv);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw Error(ExitCode::usage, {.what = "Kokkos does not start",
                                  .where = arguments,
                                  .got = text.substr(0, text.find('\n')),  // without a traceback
                                  .wanted = "arguments such as --kokkos-threads=4",
                                  .todo = "correct the --kokkos-* argument or the KOKKOS_* variable, or leave it out"});
  }
}

/// Before anything waits for threads that do not come.
void require_threads(const Communicator& world, int argc, char** argv) {
  const WantedThreads wanted = wanted_threads(std::span(argv, static_cast<std::size_t>(argc)), process_environment);
  std::optional<ThreadProbe> probe;  // until all ranks have theirs: they share the limits
  attempt_together(world, ExitCode::usage, [&] {
    require_openmp_settings(wanted, process_environment);
    probe.emplace(wanted.count - 1);
  });
  probe.reset();
  attempt_together(world, ExitCode::usage, [&] { require_whole_team(wanted, process_environment); });
}

/// For tests of the library's collectives on few ranks, and to measure where they begin to pay. In the whole job.
void set_max_direct_ranks(const Communicator& world) {
  constexpr const char* variable = "ESPALIER_MOST_DIRECT_RANKS";
  std::optional<int> ranks;
  attempt_together(world, ExitCode::usage, [&] { ranks = ranks_in_environment(variable, variable); });
  if (ranks)
    world.set_max_direct_ranks(*ranks);
}

/// How tensors go from rank to rank, in the whole job.
void use_transport(const Communicator& world, int ranks_per_device) {
  CommunicationContext& context = *world.state()->context;
  context.ranks_per_device = ranks_per_device;
  const char* const setting = std::getenv(transport_variable);
  attempt_together(world, ExitCode::usage, [&] {
    context.transport = choose_transport(setting == nullptr ? "" : setting, {.device_is_host = exec_is_host,
                                                                             .has_nccl = has_nccl,
                                                                             .ranks_per_device = ranks_per_device,
                                                                             .mpi_is_gpu_aware = mpi_says_gpu_aware()});
  });
  if (context.transport == Transport::nccl && world.size() > 1)
    context.device_links = make_nccl_factory();
}

/// Kokkos takes off the arguments that it knows.
void require_known_arguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]).starts_with("--kokkos-"))
      throw Error(ExitCode::usage, {.what = "Kokkos does not know an argument",
                                    .got = argv[i],
                                    .wanted = "arguments such as --kokkos-threads=4",
                                    .todo = "correct it, or leave it out"});
}

}  // namespace

Runtime::Runtime(int& argc, char**& argv) : Runtime(argc, argv, WithoutKokkos{}) { start_kokkos(argc, argv); }

Runtime::Runtime(int& argc, char**& argv, WithoutKokkos) : exceptions_at_start_(std::uncaught_exceptions()) {
  // CUDA reads it when it first wakes, which may be in MPI_Init. With fewer, streams share hardware queues, and a
  // kernel of NCCL that waits for its peers keeps others from starting.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int mpi_runs = 0;
  ESPALIER_MPI(MPI_Initialized(&mpi_runs));
  if (mpi_runs == 0) {
    launch_ = prepare_launch(argv);
    const LaunchFacts facts = read_launch_facts(process_environment);
    raise_open_files();
    require_process_limits(read_process_limits(), facts.local_ranks,
                           plan_launch(facts, process_environment).num_threads);
    { const ThreadProbe threads_of_mpi(2); }
    setenv("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1", 0);  // MPICH: our error block says it all
    int provided = MPI_THREAD_SINGLE;
    ESPALIER_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided));
    owns_mpi_ = true;
    if (provided < MPI_THREAD_FUNNELED)
      throw Error(ExitCode::communication,
                  {.what = "this MPI library cannot be used from a program with threads",
                   .where = mpi_library_version(),
                   .got = fmt::format("thread level {}", provided),
                   .wanted = fmt::format("at least {} (MPI_THREAD_FUNNELED)", MPI_THREAD_FUNNELED),
                   .todo = "use an MPI built with thread support"});
  }
  ESPALIER_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  world_.emplace(MPI_COMM_WORLD, "world", std::make_shared<CommunicationContext>());
  set_max_direct_ranks(*world_);
  failures_.emplace(world_->duplicate("failures"));
}

void Runtime::start_kokkos(int& argc, char**& argv) {
  if (owns_mpi_)
    refuse_other_launchers(size());
  int ranks_per_device = host_ranks(*world_).size();  // at most, where somebody else chose the devices
  if (!Kokkos::is_initialized()) {
    const SelectedDevice device = select_device(*world_);
    ranks_per_device = device.sharers;
    device_ = device.text;
    show_regions_to_profiler();
    require_threads(*world_, argc, argv);
    setenv("KOKKOS_DISABLE_WARNINGS", "1", 0);  // each rank would print what we say once
    initialize_kokkos(argc, argv);
    owns_kokkos_ = true;
    require_known_arguments(argc, argv);
  }
  use_transport(*world_, ranks_per_device);
  MemoryLedger::instance().install();
  WaitSettings& wait = world_->state()->context->wait;
  wait.ranks_share_cores = true;  // careful until it is known
  const HostCores host = measure_host_cores(*world_);
  wait.ranks_share_cores = host.ranks > 1 && host.threads > usable_cores(host);
  warning_ = crowding_text(*world_, host);
  world_->rank_progress().set_rank(world_->rank(), world_->size());
  synchronize_clocks(*world_);
  watch_for_exit(&*failures_);
}

Runtime::~Runtime() {
  // While an exception unwinds this rank the others wait somewhere: to finalize would be to wait for them.
  const bool unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  watch_for_exit(nullptr);
  const bool alone = world_ && world_->size() == 1;
  failures_.reset();
  world_.reset();
  if (owns_kokkos_)
    Kokkos::finalize();
  if (owns_mpi_ && (!unwinding || alone))
    MPI_Finalize();
}

std::string Runtime::describe() const {
  const WaitSettings& wait = world_->context().wait;
  const std::string device =
      device_.empty() ? "" : fmt::format("{}, tensors by {}; ", device_, to_string(world_->context().transport));
  return fmt::format("{} rank{}; {}{}; a waiting rank {}{}", size(), size() > 1 ? "s" : "", device,
                     launch_.empty() ? "launch environment left to the caller" : launch_,
                     wait.ranks_share_cores ? "yields its core" : "keeps its core",
                     wait.ranks_share_cores ? " (ranks share cores)" : "");
}

void Runtime::fail(ExitCode code, const std::string& text) const { fail_job(*failures_, code, text); }

int run_job(int& argc, char**& argv, const std::function<int(Runtime&)>& body) {
  Runtime runtime(argc, argv, Runtime::WithoutKokkos{});  // from here on a failure can be reported
  try {
    runtime.start_kokkos(argc, argv);
    return body(runtime);
  } catch (const std::exception& exception) {
    const Error error = error_from(exception, ExitCode::defect);
    runtime.fail(error.code(), error.what());
  } catch (...) {
    runtime.fail(ExitCode::defect, "an exception of unknown type");
  }
}

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  ESPALIER_MPI(MPI_Get_library_version(text.data(), &length));
  std::string line(text.data());  // not by its length, in which Open MPI counts a zero
  line = line.substr(0, line.find('\n'));
  for (char& c : line)
    c = c == '\t' ? ' ' : c;
  return line;
}

}  // namespace espalier
