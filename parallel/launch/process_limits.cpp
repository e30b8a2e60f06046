// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch/process_limits.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cctype>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/error.hpp"
#include "core/memory_text.hpp"

namespace espalier {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

// Measured with MPICH 4.0 over UCX 1.13, OpenBLAS 0.3.21 and oneDNN 2.6, and rounded up.
constexpr std::size_t shared_memory_of_a_rank = 5 * mib;  // a file, too, where it is /dev/shm that holds it
constexpr std::size_t min_memory = 640 * mib;             // of addresses, more than is ever used
constexpr std::size_t memory_of_a_thread = 192 * mib;     // the allocator's arena, buffers of matmuls, its stack
constexpr std::size_t min_stack = 256 * kib;
constexpr std::size_t max_stack = 1024 * mib;
constexpr std::size_t min_open_files = 64;

std::size_t soft_limit(decltype(RLIMIT_AS) resource) {
  rlimit limit = {};
  const bool known = getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? static_cast<std::size_t>(limit.rlim_cur) : ProcessLimits::none;
}

std::string many(int count, const char* noun) { return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s"); }

std::string kib_text(const char* option, std::size_t bytes) { return fmt::format("ulimit {} {}", option, bytes / kib); }

// "OMP_STACKSIZE=8M", or libgomp's own variable, which counts where that is not set; empty without either.
std::string stack_setting() {
  for (const char* const name : {"OMP_STACKSIZE", "GOMP_STACKSIZE"})
    if (const char* const value = std::getenv(name))
      return fmt::format("{}={}", name, value);
  return "";
}

// The settings that may keep a thread from starting.
std::string limits_of_threads() {
  std::string text;
  const auto add = [&](const std::string& limit) { text += (text.empty() ? "" : ", ") + limit; };
  if (const std::string stack = stack_setting(); !stack.empty())
    add(stack);
  if (const std::size_t processes = soft_limit(RLIMIT_NPROC); processes != ProcessLimits::none)
    add(fmt::format("ulimit -u {} (processes and threads of this user)", processes));
  if (const MemoryLimit memory = process_memory_left(); !memory.name.empty())
    add(memory.name);
  return text;
}

// What OpenMP asks for, if it says so; else the system's.
std::size_t wanted_stack() {
  const std::string setting = stack_setting();
  return setting.empty() ? 0 : stack_size_in(setting.substr(setting.find('=') + 1));
}

}  // namespace

void raise_open_files() {
  constexpr rlim_t enough = rlim_t{1} << 20;  // in containers the hard limit may be a thousand times that
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < std::min(files.rlim_max, enough)) {
    files.rlim_cur = std::min(files.rlim_max, enough);
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

ProcessLimits read_process_limits() {
  ProcessLimits limits{.memory = process_memory_left(),
                       .stack = soft_limit(RLIMIT_STACK),
                       .file_size = soft_limit(RLIMIT_FSIZE),
                       .open_files = soft_limit(RLIMIT_NOFILE)};
  // Its size, not what is free: ranks that are ahead have taken their part of that already.
  if (struct statvfs space = {}; statvfs("/dev/shm", &space) == 0 && space.f_blocks > 0)
    limits.shared_memory = static_cast<std::size_t>(space.f_blocks) * space.f_frsize;
  if (std::getenv("UCX_TLS") != nullptr)
    limits.shared_memory = ProcessLimits::none;  // whoever chooses the transports may have left it out
  return limits;
}

void require_process_limits(const ProcessLimits& limits, int local_ranks, int num_threads) {
  const std::size_t memory = min_memory + memory_of_a_thread * static_cast<std::size_t>(num_threads);
  if (limits.memory.bytes < memory)
    throw Error(ExitCode::memory,
                {.what = "the memory limit of this process is too low",
                 .got = fmt::format("{}, which leaves {}", limits.memory.name, bytes_text(limits.memory.bytes)),
                 .wanted = fmt::format("{} of addresses for a rank with {}, before the model", bytes_text(memory),
                                       many(num_threads, "thread")),
                 .todo = "raise it (ulimit -v unlimited -d unlimited), or use fewer threads (OMP_NUM_THREADS)"});
  if (limits.stack < min_stack)
    throw Error(ExitCode::memory, {.what = "the stack limit is too low",
                                   .got = kib_text("-s", limits.stack),
                                   .wanted = fmt::format("at least {}", bytes_text(min_stack)),
                                   .todo = "raise it: ulimit -s 8192"});
  if (limits.open_files < min_open_files)
    throw Error(ExitCode::memory, {.what = "the limit on open files is too low",
                                   .got = fmt::format("ulimit -n {}", limits.open_files),
                                   .wanted = fmt::format("at least {}", min_open_files),
                                   .todo = "raise it: ulimit -n 1024"});
  if (limits.file_size < shared_memory_of_a_rank)
    throw Error(ExitCode::write, {.what = "the file size limit is too low",
                                  .got = kib_text("-f", limits.file_size),
                                  .wanted = fmt::format("{} for the shared memory of MPI, and the size of a checkpoint",
                                                        bytes_text(shared_memory_of_a_rank)),
                                  .todo = "raise it: ulimit -f unlimited"});
  const std::size_t shared = shared_memory_of_a_rank * static_cast<std::size_t>(local_ranks);
  if (limits.shared_memory < shared)
    throw Error(ExitCode::memory,
                {.what = "/dev/shm is too small for the ranks of this host",
                 .where = "/dev/shm, through which MPI sends messages within a host",
                 .got = bytes_text(limits.shared_memory),
                 .wanted = fmt::format("{} for {}", bytes_text(shared), many(local_ranks, "rank")),
                 .todo = "make it larger (docker run --shm-size=1g; mount -o remount,size=1g /dev/shm), or start fewer "
                         "ranks on this host"});
}

struct ThreadProbe::Threads {
  std::mutex mutex;
  std::condition_variable over;
  bool is_over = false;
  std::vector<pthread_t> started;

  static void* wait(void* probe) {
    Threads& threads = *static_cast<Threads*>(probe);
    std::unique_lock lock(threads.mutex);
    threads.over.wait(lock, [&] { return threads.is_over; });
    return nullptr;
  }
  ~Threads() {
    {
      const std::lock_guard lock(mutex);
      is_over = true;
    }
    over.notify_all();
    for (const pthread_t thread : started)
      pthread_join(thread, nullptr);
  }
};

ThreadProbe::ThreadProbe(int num_threads) : threads_(std::make_unique<Threads>()) {
  const std::size_t stack = wanted_stack();
  const bool is_sane = stack == 0 || (stack >= min_stack && stack <= max_stack);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  int error = stack == 0 ? 0 : pthread_attr_setstacksize(&attributes, stack);
  for (int i = 0; i < num_threads && error == 0; ++i)
    if (pthread_t thread; (error = pthread_create(&thread, &attributes, Threads::wait, threads_.get())) == 0)
      threads_->started.push_back(thread);
  pthread_attr_destroy(&attributes);
  if (error == 0 && (stack == 0 || stack >= min_stack || num_threads == 0))
    return;
  if (!is_sane)
    throw Error(ExitCode::usage, {.what = "no thread can be started with this stack",
                                  .got = stack_setting(),
                                  .wanted = fmt::format("{} to {}", bytes_text(min_stack), bytes_text(max_stack)),
                                  .todo = "unset it, or set it to 8M"});
  const std::string limits = limits_of_threads();
  throw Error(
      ExitCode::memory,
      {.what = "this process cannot start its threads",
       .got = fmt::format("{} of {}, then: {} (errno {})", threads_->started.size(), num_threads, std::strerror(error),
                          error),
       .wanted = fmt::format("{} besides the first", num_threads),
       .todo = limits.empty()
                   ? "look at the limits of this job (pids.max of its control group), or use fewer threads "
                     "(OMP_NUM_THREADS)"
                   : fmt::format("raise what limits them ({}), or use fewer threads (OMP_NUM_THREADS)", limits)});
}

ThreadProbe::~ThreadProbe() = default;

std::size_t stack_size_in(const std::string& text) {
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text.c_str(), &end, 10);
  while (std::isspace(static_cast<unsigned char>(*end)) != 0)
    ++end;
  const std::string units = "bkmg";
  const char unit = *end == '\0' ? 'k' : static_cast<char>(std::tolower(static_cast<unsigned char>(*end++)));
  while (std::isspace(static_cast<unsigned char>(*end)) != 0)
    ++end;
  const std::size_t shift = units.find(unit) * 10;
  if (end == text.c_str() || *end != '\0' || units.find(unit) == std::string::npos || number > (~0ULL >> shift))
    return 0;
  return static_cast<std::size_t>(number) << shift;
}

}  // namespace espalier
