// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace espalier::test {

/// A directory of the test's own, removed at its end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "espalier-io-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A process that does `prepare`, keeps what that returns and waits to be killed: what a job leaves behind.
class WaitingProcess {
 public:
  template <class Prepare>
  explicit WaitingProcess(const Prepare& prepare) {
    int pipes[2];
    if (::pipe(pipes) != 0 || (id_ = ::fork()) < 0)
      throw std::runtime_error("no pipe or no process is left");
    if (id_ == 0) {
      const auto kept = prepare();
      const char ready = 'x';
      if (::write(pipes[1], &ready, 1) != 1)
        ::_exit(1);
      ::pause();
      ::_exit(0);
    }
    ::close(pipes[1]);
    char ready = 0;
    EXPECT_EQ(::read(pipes[0], &ready, 1), 1);
    ::close(pipes[0]);
  }
  ~WaitingProcess() { kill(); }
  WaitingProcess(const WaitingProcess&) = delete;
  WaitingProcess& operator=(const WaitingProcess&) = delete;

  pid_t id() const { return id_; }
  void kill() {
    if (std::exchange(alive_, false)) {
      ::kill(id_, SIGKILL);
      ::waitpid(id_, nullptr, 0);
    }
  }

 private:
  pid_t id_ = -1;
  bool alive_ = true;
};

/// No file may grow beyond `bytes` while this lives: a full disk without a disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int);
};

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

template <class T>
void write_values(const std::filesystem::path& path, const std::vector<T>& values) {
  write_bytes(path, std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// What `action` threw; fails when it threw nothing.
template <class Action>
Error caught(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no espalier::Error was thrown";
  return Error(ExitCode::ok, {});
}

/// Expects an Error with this code whose text contains all the parts.
template <class Action>
void expect_error(ExitCode code, const std::vector<std::string>& parts, const Action& action) {
  const Error error = caught(action);
  EXPECT_EQ(error.code(), code) << error.what();
  for (const std::string& part : parts)
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "no \"" << part << "\" in:\n" << error.what();
}

}  // namespace espalier::test
