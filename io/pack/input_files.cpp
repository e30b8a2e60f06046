// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/input_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>

#include "io/tokens/megatron_index.hpp"

namespace espalier {
namespace {

[[noreturn]] void refuse_inputs(std::string what, std::string where, std::string todo) {
  throw Error(ExitCode::data, {.what = std::move(what), .where = std::move(where), .todo = std::move(todo)});
}

const char* const about_patterns =
    "check the path; patterns are the shell's: * ? [a-z] {a,b} {1..9}, and ** for directories in directories";

// What a file is, under whatever name.
using Identity = std::pair<dev_t, ino_t>;
std::optional<Identity> identity(const Path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0)
    return std::nullopt;
  return Identity{status.st_dev, status.st_ino};
}

// Calls `visit` with all entries of a directory, and of those below for which it returns true.
void for_each_entry(const Path& directory, const auto& visit) {
  std::error_code error;
  std::filesystem::directory_iterator entry(directory, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    if (visit(*entry))
      for_each_entry(entry->path(), visit);
  if (error)
    refuse_inputs("a directory cannot be read: " + error.message(), directory.string(),
                  "make it readable, or name the other files and directories");
}

// A directory and all below it that no link leads to.
std::vector<Path> directories_in(const Path& directory) {
  std::vector<Path> found{directory};
  for_each_entry(directory, [&](const std::filesystem::directory_entry& entry) {
    std::error_code ignored;
    const bool is_below = entry.is_directory(ignored) && !entry.is_symlink(ignored);
    if (is_below)
      found.push_back(entry.path());
    return is_below;
  });
  return found;
}

// The files in a directory and all below it, behind links, too; not those whose names, or whose directories' names,
// begin with a dot.
std::vector<std::string> files_in(const Path& directory) {
  std::vector<std::string> found;
  std::set<Identity> seen;  // a link may lead upwards
  if (const auto top = identity(directory))
    seen.insert(*top);
  for_each_entry(directory, [&](const std::filesystem::directory_entry& entry) {
    std::error_code ignored;
    if (entry.path().filename().string().starts_with('.'))
      return false;
    if (entry.is_directory(ignored)) {
      const auto below = identity(entry.path());
      return below && seen.insert(*below).second;
    }
    if (entry.is_regular_file(ignored))
      found.push_back(entry.path().string());
    return false;
  });
  return found;
}

// As the shell would have, had the pattern not been quoted; with `~`, and ** for any number of directories. Empty
// without a match.
std::vector<std::string> glob_paths(const std::string& pattern) {
  const std::size_t stars = pattern.starts_with("**/") ? 0 : pattern.find("/**/");
  if (stars != std::string::npos) {
    const std::size_t begin = pattern.find("**/");
    std::vector<std::string> paths;
    for (const std::string& top : begin == 0 ? std::vector<std::string>{"."} : glob_paths(pattern.substr(0, begin)))
      for (const Path& directory : directories_in(top))
        for (const std::string& path : glob_paths(as_pattern(directory.string()) + "/" + pattern.substr(begin + 3)))
          paths.push_back(begin == 0 ? path.substr(2) : path);
    return paths;
  }
  ::glob_t found = {};
  std::vector<std::string> paths;
  const auto stops_at = [](const char*, int error) { return error == EACCES || error == EIO ? 1 : 0; };
  const int result = ::glob(pattern.c_str(), GLOB_TILDE, stops_at, &found);
  if (result == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (result == GLOB_ABORTED)
    refuse_inputs("a directory of a pattern cannot be read", pattern, "make it readable, or name other files");
  return paths;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// A link that leads in a circle is none.
bool is_directory(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// The patterns without braces that one stands for. An existing path wins over its meaning as a pattern.
std::vector<std::string> alternatives(const std::string& pattern) {
  return exists(pattern) ? std::vector<std::string>{pattern} : expand_braces(pattern);
}

// What a pattern without braces leads to: where it is one, no directories.
std::vector<std::string> expand_pattern(const std::string& pattern) {
  if (exists(pattern))
    return {pattern};
  std::vector<std::string> paths = glob_paths(pattern.ends_with("/**") ? pattern + "/*" : pattern);
  if (pattern.find_first_of("*?[") != std::string::npos)
    std::erase_if(paths, is_directory);
  return paths;
}

std::vector<std::string> all_alternatives(const std::vector<std::string>& patterns) {
  std::vector<std::string> all;
  for (const std::string& pattern : patterns) {
    const std::vector<std::string> some = alternatives(pattern);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

bool matches(const std::string& pattern, const Path& name) { return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0; }

// An input as it was named, and the file that this leads to; empty behind a broken link.
struct InputCandidate {
  Path given;
  Path canonical;
};

// One pattern of --exclude, and whether it has met a file.
class Exclusion {
 public:
  explicit Exclusion(const std::string& pattern) : pattern_(pattern) {
    for (const std::string& path : expand_pattern(pattern)) {
      std::error_code ignored;
      const Path canonical = std::filesystem::canonical(path, ignored);
      names_.insert(Path(path).lexically_normal());
      if (std::filesystem::is_directory(canonical, ignored))
        directories_.push_back(canonical);
      else if (const auto file = identity(path))
        files_.insert(*file);
    }
  }

  bool excludes(const InputCandidate& candidate) const {
    const auto file = identity(candidate.given);
    return matches(pattern_, candidate.given.filename()) || matches(pattern_, candidate.canonical.filename()) ||
           (file && files_.contains(*file)) || names_.contains(candidate.given.lexically_normal()) ||
           std::any_of(directories_.begin(), directories_.end(),
                       [&](const Path& directory) { return lies_below(directory, candidate.canonical); });
  }
  const std::string& pattern() const { return pattern_; }

 private:
  static bool lies_below(const Path& directory, const Path& path) {
    return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
  }

  std::string pattern_;
  std::set<Identity> files_;
  std::set<Path> names_;  // also of links that lead to no file
  std::vector<Path> directories_;
};

std::vector<InputCandidate> candidates_of(const std::vector<std::string>& patterns) {
  std::vector<InputCandidate> candidates;
  std::vector<std::string> missing;
  for (const std::string& pattern : all_alternatives(patterns)) {
    const std::vector<std::string> paths = is_directory(pattern) ? files_in(pattern) : expand_pattern(pattern);
    if (paths.empty())
      missing.push_back(pattern);
    for (const std::string& path : paths) {
      std::error_code broken_link;
      candidates.push_back({path, std::filesystem::canonical(path, broken_link)});
    }
  }
  if (!missing.empty())
    refuse_inputs("no file matches", fmt::format("{}", fmt::join(missing, ", ")), about_patterns);
  return candidates;
}

// Takes off what is excluded. Held-out text must not be trained on because of a typing error.
void exclude_from(std::vector<InputCandidate>& candidates, const std::vector<std::string>& patterns) {
  std::set<Identity> excluded_files;
  std::set<Path> excluded_names;
  std::vector<std::string> unused;
  for (const std::string& pattern : all_alternatives(patterns)) {
    const Exclusion exclusion(pattern);
    bool is_used = false;
    for (const InputCandidate& candidate : candidates) {
      if (!exclusion.excludes(candidate))
        continue;
      is_used = true;
      excluded_names.insert(candidate.given);
      // A link that is excluded by its own name does not take with it what it leads to.
      const bool is_only_a_link = candidate.given.filename() != candidate.canonical.filename() &&
                                  std::filesystem::is_symlink(candidate.given) &&
                                  !exclusion.excludes({candidate.canonical, candidate.canonical});
      if (const auto file = identity(candidate.given); file && !is_only_a_link)
        excluded_files.insert(*file);
    }
    if (!is_used)
      unused.push_back(pattern);
  }
  if (!unused.empty())
    refuse_inputs("a pattern of --exclude matches no input", fmt::format("{}", fmt::join(unused, ", ")),
                  fmt::format("correct or remove it, or else text that you hold out would be packed; {}",
                              "a pattern is of a file name ('*.dat') or of a path ('corpus/held_out/*')"));
  std::erase_if(candidates, [&](const InputCandidate& candidate) {
    const auto file = identity(candidate.given);
    return excluded_names.contains(candidate.given) || (file && excluded_files.contains(*file));
  });
}

}  // namespace

std::vector<std::string> expand_token_files(const std::string& entry) {
  if (exists(entry) || entry.find_first_of("*?[{") == std::string::npos)
    return {entry};
  std::set<std::string> found;
  for (const std::string& pattern : expand_braces(entry))
    for (const std::string& path : expand_pattern(pattern))
      if (exists(path))
        found.insert(path);
  const auto is_index = [&](const std::string& path) {
    const MegatronPair pair = find_megatron_pair(path);
    return pair.index == path && found.contains(pair.tokens.string());
  };
  std::vector<std::string> files;
  for (const std::string& path : found)
    if (!is_index(path))
      files.push_back(path);
  if (files.empty())
    refuse_inputs("no token file matches", entry, about_patterns);
  return files;
}

std::string as_pattern(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    if (std::string_view("*?[]{}~\\").find(c) != std::string_view::npos)
      pattern += '\\';
    pattern += c;
  }
  return pattern;
}

std::vector<Path> expand_inputs(const std::vector<std::string>& patterns, const std::vector<std::string>& exclude) {
  // Another name beside it would be looked for among the files.
  if (std::ranges::find(patterns, "-") != patterns.end())
    return {patterns.begin(), patterns.end()};
  std::vector<InputCandidate> candidates = candidates_of(patterns);
  exclude_from(candidates, exclude);
  std::map<Path, Identity> named;
  for (const InputCandidate& candidate : candidates) {
    const auto file = identity(candidate.given);
    if (!file)
      throw Error(ExitCode::data, {.what = "a file to pack cannot be opened",
                                   .where = candidate.given.string(),
                                   .got = system_message(errno),
                                   .wanted = "a file, or a link to a file",
                                   .todo = "correct the link, or leave it out with --exclude"});
    if (!std::filesystem::is_regular_file(candidate.given))
      throw Error(ExitCode::data, {.what = "an input is not a file",
                                   .where = candidate.given.string(),
                                   .got = "a pipe, a device or a socket",
                                   .wanted = "a regular file, because text is read twice",
                                   .todo = "write the text to a file first"});
    named.emplace(candidate.canonical, *file);
  }
  std::vector<Path> files;
  std::set<Identity> seen;
  for (const auto& [path, file] : named)
    if (seen.insert(file).second)
      files.push_back(path);
  if (files.empty())
    refuse_inputs("no files to pack", "", "name files or patterns that are not all excluded");
  return files;
}

}  // namespace espalier
