// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A library to preload into `espalier` that injects a fault at one operation that changes files: the process is killed
// just before it, or the operation fails. Needs neither ptrace nor a full disk, and costs no time. Settings in the
// environment:
//
//   ESPALIER_FAULT        kill, or what the operation fails with: ENOSPC EDQUOT EIO EACCES. Nothing is injected without
//   it ESPALIER_FAULT_AT     which operation, from 1 ESPALIER_FAULT_FROM   counting starts with the first operation on
//   a path that contains this text ... ESPALIER_FAULT_UNDER  ... and counts operations on paths that contain this one
//   ESPALIER_FAULT_STRIDE of the calls of pwrite, of which a shard has many, only every N-th counts
//   ESPALIER_FAULT_RANK   of this rank only
//   ESPALIER_FAULT_LASTS  1: all later operations under it fail alike, as on a disk that stays full
//   ESPALIER_FAULT_LOG    a file that gets a line, "fsync .../rank-00000.h5", when the fault strikes
//
// Files that are only read change nothing on the disk, so opening and closing them does not count.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace {

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

std::string rank_of_this_process() {
  for (const char* const name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* const rank = std::getenv(name))
      return rank;
  return "0";
}

int error_named(const std::string& name) {
  if (name == "ENOSPC")
    return ENOSPC;
  if (name == "EDQUOT")
    return EDQUOT;
  if (name == "EACCES")
    return EACCES;
  return EIO;
}

struct Plan {
  std::string fault = setting("ESPALIER_FAULT");
  std::string from = setting("ESPALIER_FAULT_FROM");
  std::string under = setting("ESPALIER_FAULT_UNDER");
  std::string rank = setting("ESPALIER_FAULT_RANK");
  std::string log = setting("ESPALIER_FAULT_LOG");
  long at = std::atol(setting("ESPALIER_FAULT_AT").c_str());
  long stride = std::max(1L, std::atol(setting("ESPALIER_FAULT_STRIDE").c_str()));
  bool lasts = setting("ESPALIER_FAULT_LASTS") == "1";
  bool active = !fault.empty() && (rank.empty() || rank == rank_of_this_process());
};

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

void tell(const std::string& file, const char* operation, const std::string& path) {
  const int log = next<int(const char*, int, ...)>("open")(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  const std::string line = std::string(operation) + ' ' + path + '\n';
  if (log < 0 || next<ssize_t(int, const void*, size_t)>("write")(log, line.data(), line.size()) < 0)
    std::abort();
  next<int(int)>("close")(log);
}

// Whether this operation on `path` must fail; then errno is set. Does not return where it is the last one of the
// process.
bool strikes(const char* operation, const std::string& path) {
  static const Plan plan;
  static std::atomic<bool> counting = false;
  static std::atomic<bool> struck = false;
  static std::atomic<long> count = 0;
  static std::atomic<long> pwrites = 0;
  if (!plan.active)
    return false;
  if (!counting && path.find(plan.from) != std::string::npos)
    counting = true;
  if (!counting || path.find(plan.under) == std::string::npos)
    return false;
  if (struck && plan.lasts) {
    errno = error_named(plan.fault);
    return true;
  }
  if (std::string_view(operation) == "pwrite" && pwrites++ % plan.stride != 0)
    return false;
  if (++count != plan.at)
    return false;
  struck = true;
  if (!plan.log.empty())
    tell(plan.log, operation, path);
  if (plan.fault == "kill")
    ::kill(::getpid(), SIGKILL);
  errno = error_named(plan.fault);
  return true;
}

std::string path_of(int descriptor) {
  char path[4096];
  const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), path, sizeof path);
  return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : "";
}

bool changes(int flags) { return (flags & O_ACCMODE) != O_RDONLY; }

}  // namespace

// Each call exists under two names, the second for large files.
#define ESPALIER_TWICE(DEFINE, name) \
  DEFINE(name)                       \
  DEFINE(name##64)

#define ESPALIER_OPEN(name)                                                \
  int name(const char* path, int flags, ...) {                             \
    va_list rest;                                                          \
    va_start(rest, flags);                                                 \
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0; \
    va_end(rest);                                                          \
    if (changes(flags) && strikes("open", path))                           \
      return -1;                                                           \
    return next<int(const char*, int, ...)>(#name)(path, flags, mode);     \
  }

#define ESPALIER_PWRITE(name)                                                               \
  ssize_t name(int file, const void* data, size_t size, off_t offset) {                     \
    if (strikes("pwrite", path_of(file)))                                                   \
      return -1;                                                                            \
    return next<ssize_t(int, const void*, size_t, off_t)>(#name)(file, data, size, offset); \
  }

#define ESPALIER_FTRUNCATE(name)                     \
  int name(int file, off_t size) noexcept {          \
    if (strikes("ftruncate", path_of(file)))         \
      return -1;                                     \
    return next<int(int, off_t)>(#name)(file, size); \
  }

extern "C" {

ESPALIER_TWICE(ESPALIER_OPEN, open)
ESPALIER_TWICE(ESPALIER_PWRITE, pwrite)
ESPALIER_TWICE(ESPALIER_FTRUNCATE, ftruncate)

ssize_t write(int file, const void* data, size_t size) {
  return strikes("write", path_of(file)) ? -1 : next<ssize_t(int, const void*, size_t)>("write")(file, data, size);
}

ssize_t writev(int file, const iovec* parts, int count) {
  return strikes("write", path_of(file)) ? -1 : next<ssize_t(int, const iovec*, int)>("writev")(file, parts, count);
}

int fsync(int file) { return strikes("fsync", path_of(file)) ? -1 : next<int(int)>("fsync")(file); }

int close(int file) {  // the file is closed even if that fails, as the kernel does it
  const bool written = changes(::fcntl(file, F_GETFL));
  const bool fails = written && strikes("close", path_of(file));
  const int reason = errno;
  const int result = next<int(int)>("close")(file);
  if (!fails)
    return result;
  errno = reason;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  return strikes("rename", to) ? -1 : next<int(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) noexcept {
  if (strikes("rename", to))
    return -1;
  return next<int(int, const char*, int, const char*, unsigned)>("renameat2")(from_directory, from, to_directory, to,
                                                                              flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  return strikes("mkdir", path) ? -1 : next<int(const char*, mode_t)>("mkdir")(path, mode);
}

int remove(const char* path) noexcept { return strikes("unlink", path) ? -1 : next<int(const char*)>("remove")(path); }

int unlink(const char* path) noexcept { return strikes("unlink", path) ? -1 : next<int(const char*)>("unlink")(path); }

int rmdir(const char* path) noexcept { return strikes("rmdir", path) ? -1 : next<int(const char*)>("rmdir")(path); }

int unlinkat(int directory, const char* path, int flags) noexcept {
  const std::string whole = *path == '/' || directory == AT_FDCWD ? path : path_of(directory) + '/' + path;
  return strikes("unlink", whole) ? -1 : next<int(int, const char*, int)>("unlinkat")(directory, path, flags);
}

}  // extern "C"
