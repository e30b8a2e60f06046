// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/units.hpp"

namespace espalier {
namespace {

std::string advice(int error_number, const Path& path) {
  const char* const elsewhere = "choose a path on a file system that you can write to";
  switch (error_number) {
    case EFBIG: return "raise the limit of a file's size: ulimit -f unlimited";
    case EMFILE:
    case ENFILE: return "raise the limit of open files: ulimit -n 1024";
    case ENOSPC:
    case EDQUOT: {
      std::error_code ignored;
      const Path directory = path.parent_path().empty() ? Path(".") : path.parent_path();
      const auto space = std::filesystem::space(directory, ignored);
      const std::string left = ignored ? "" : fmt::format(" ({} are left there)", bytes_text(space.available));
      return "free some space, raise the quota or choose another directory" + left;
    }
    case EACCES:
    case EPERM:
    case EROFS: return "choose a directory you may write to, or change its permissions";
    case ENOENT: {
      const Path directory = path.parent_path();
      std::error_code ignored;
      if (!directory.empty() && !std::filesystem::exists(directory, ignored))
        return fmt::format("create the directory {} first, or choose another path", directory.string());
      return elsewhere;
    }
    case ENOTDIR:
    case EEXIST:
    case EISDIR:
    case ELOOP: return "another file or directory has this path: move it away, or choose another path";
    default: return elsewhere;
  }
}

[[noreturn]] void throw_read_error(const Path& path, ExitCode code, int error_number) {
  throw Error(code, {.what = error_number == ENOENT ? "file not found" : "cannot read a file",
                     .where = path.string(),
                     .got = system_message(error_number),
                     .wanted = "a readable regular file",
                     .todo = error_number == EMFILE || error_number == ENFILE
                                 ? advice(error_number, path)
                                 : "check the path, relative ones start at the working directory"});
}

// `write` takes how many bytes are written already; one that writes a part only is called again, and says why it cannot
// go on.
template <class Write>
void write_all(const Path& path, std::size_t size, const Write& write) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t written = write(done);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      throw_write_error("cannot write a file", path, written < 0 ? errno : ENOSPC);
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace

std::string system_message(int error_number) {
  return fmt::format("{} (errno {})", std::strerror(error_number), error_number);
}

void throw_write_error(const std::string& what, const Path& path, int error_number) {
  throw Error(ExitCode::write, {.what = what,
                                .where = path.string(),
                                .got = system_message(error_number),
                                .wanted = "a place that this process can write to",
                                .todo = advice(error_number, path)});
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0)
    ::close(descriptor_);
}

int FileDescriptor::release() { return std::exchange(descriptor_, -1); }

OutputFile::OutputFile(const Path& path, Path called)
    : called_(std::move(called)),
      file_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)) {
  if (!file_.is_open())
    throw_write_error("cannot create a file", called_, errno);
}

void OutputFile::write(const void* data, std::size_t size) {
  write_all(called_, size,
            [&](std::size_t done) { return ::write(file_.get(), static_cast<const char*>(data) + done, size - done); });
}

void OutputFile::write_at(std::uint64_t offset, const void* data, std::size_t size) {
  write_all(called_, size, [&](std::size_t done) {
    return ::pwrite(file_.get(), static_cast<const char*>(data) + done, size - done, static_cast<off_t>(offset + done));
  });
}

void OutputFile::continue_at(std::uint64_t bytes) {
  if (::ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0 ||
      ::lseek(file_.get(), static_cast<off_t>(bytes), SEEK_SET) < 0)
    throw_write_error("cannot continue a file", called_, errno);
}

void OutputFile::sync() {
  if (::fsync(file_.get()) != 0)
    throw_write_error("cannot write a file to disk", called_, errno);
}

void OutputFile::sync_and_close() {
  sync();
  if (::close(file_.release()) != 0)
    throw_write_error("cannot close a written file", called_, errno);
}

InputFile::InputFile(const Path& path, ExitCode code)
    : path_(path), code_(code), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status = {};
  if (!file_.is_open() || ::fstat(file_.get(), &status) != 0)
    throw_read_error(path, code, errno);
  if (!S_ISREG(status.st_mode))
    throw_read_error(path, code, S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
  size_ = static_cast<std::size_t>(status.st_size);
}

void InputFile::read_at(std::size_t offset, void* data, std::size_t bytes) const {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t got =
        ::pread(file_.get(), static_cast<char*>(data) + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      throw_read_error(path_, code_, errno);
    struct stat status = {};
    if (got == 0 && ::fstat(file_.get(), &status) == 0)
      throw Error(code_, {.what = "a file became shorter while it was read",
                          .where = path_.string(),
                          .got = fmt::format("{} bytes", status.st_size),
                          .wanted = fmt::format("the {} bytes that it had at the start", size_),
                          .todo = "copy or make it again, under another name if a run reads it"});
    done += static_cast<std::size_t>(got);
  }
}

void InputFile::read_pieces(std::size_t begin, std::size_t end, std::size_t piece_bytes,
                            const std::function<void(std::string_view)>& visit) const {
  std::string piece(std::min(piece_bytes, end - begin), '\0');
  for (std::size_t at = begin; at < end; at += piece.size()) {
    piece.resize(std::min(piece_bytes, end - at));
    read_at(at, piece.data(), piece.size());
    visit(piece);
  }
}

std::string read_file(const Path& path, ExitCode code, std::size_t most) {
  const InputFile file(path, code);
  if (file.size() > most)
    throw Error(code, {.what = "a file is too large for its kind",
                       .where = path.string(),
                       .got = bytes_text(file.size()),
                       .wanted = fmt::format("at most {}", bytes_text(most)),
                       .todo = "check the path; if the file is damaged, restore it from a copy"});
  std::string text(file.size(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

void sync_file(const Path& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open() || ::fsync(file.get()) != 0)
    throw_write_error("cannot write a file to disk", path, errno);
}

void sync_directory(const Path& path) {
  const Path directory = path.empty() ? Path(".") : path;
  FileDescriptor file(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems know no fsync of a directory and say EINVAL: then there is nothing more to do.
  if (!file.is_open() || (::fsync(file.get()) != 0 && errno != EINVAL))
    throw_write_error("cannot write a directory to disk", directory, errno);
}

void write_file_atomically(const Path& path, std::string_view text) {
  Path temporary = path;
  temporary += ".espalier.partial";  // a name that nobody else gives
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  try {
    OutputFile file(temporary, path);
    file.write(text.data(), text.size());
    file.sync_and_close();
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      throw_write_error("cannot replace a file", path, errno);
  } catch (...) {
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  sync_directory(path.parent_path());
}

void make_directories(const Path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error || !std::filesystem::is_directory(path, error))
    throw_write_error("cannot create a directory", path, error ? error.value() : ENOTDIR);
}

}  // namespace espalier
