// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"

namespace espalier {
namespace {

// The five fields as one text: no message contains a zero byte.
std::string pack(const ErrorReport& report) {
  std::string text;
  for (const std::string& field : {report.what, report.where, report.got, report.wanted, report.todo})
    text += field + '\0';
  return text;
}

ErrorReport unpack(const std::string& text) {
  ErrorReport report;
  std::size_t begin = 0;
  for (std::string* field : {&report.what, &report.where, &report.got, &report.wanted, &report.todo}) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    *field = text.substr(begin, end - begin);
    begin = std::min(end + 1, text.size());
  }
  return report;
}

}  // namespace

void attempt_together(const Communicator& communicator, ExitCode otherwise, const std::function<void()>& attempt) {
  std::optional<Error> own;
  try {
    attempt();
  } catch (const std::exception& error) {
    own = error_from(error, otherwise);
  }
  if (communicator.size() == 1) {
    if (own)
      throw *own;
    return;
  }
  const Index own_code = own ? static_cast<Index>(own->code()) : 0;
  std::vector<Index> codes(static_cast<std::size_t>(communicator.size()));
  all_gather(communicator, std::span<Index>(codes), std::span<const Index>(&own_code, 1));
  const auto failed = std::find_if(codes.begin(), codes.end(), [](Index code) { return code != 0; });
  if (failed == codes.end())
    return;
  const int rank = static_cast<int>(failed - codes.begin());
  ErrorReport report = unpack(broadcast_text(communicator, own ? pack(own->report()) : "", rank));
  const std::string who = fmt::format("rank {}", communicator.world_rank(rank));
  report.where = report.where.empty() ? who : fmt::format("{}, {}", report.where, who);
  throw Error(static_cast<ExitCode>(*failed), std::move(report));
}

}  // namespace espalier
