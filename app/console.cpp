// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/console.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "core/printable_text.hpp"
#include "io/file.hpp"

namespace espalier {
namespace {

// Asked before each line: a window may change. Behind mpiexec there is a pipe, and 80 is what every terminal has.
int terminal_columns() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string duration_text(double seconds) {
  if (seconds < 1)
    return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 10)
    return fmt::format("{:.2f} s", seconds);
  const auto whole = std::lround(seconds);
  if (whole < 100)
    return fmt::format("{} s", whole);
  if (whole < 3600)
    return fmt::format("{}m{:02}", whole / 60, whole % 60);
  if (whole < 48 * 3600)
    return fmt::format("{}h{:02}", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string step_line(const StepReport& report, const TrainProgress& progress) {
  const std::string reason = report.counts.valid_tokens == 0 ? "no token counts"
                             : report.judgement.anomaly == Anomaly::none
                                 ? fmt::format("overflow, loss scale {}", report.loss_scale)
                                 : to_string(report.judgement.anomaly);
  const std::string update = report.skipped ? "skipped: " + reason : fmt::format("lr {:.1e}", report.learning_rate);
  const std::string mfu = progress.mfu ? fmt::format(" | mfu {:.0f}%", 100 * *progress.mfu) : "";
  constexpr std::size_t columns = 120;
  std::string line = fmt::format(
      "step {:>6}/{} | loss {:.4f} | norm {:.3g} | {} | {} | {} tok/s | gemm {:.0f}%{} | left {}", report.step,
      progress.total_steps, report.loss, report.gradient_norm, update, duration_text(report.step_seconds),
      count_text(progress.tokens_per_second), 100 * progress.gemm_fraction, mfu, duration_text(progress.seconds_left));
  const std::string save = fmt::format(" | save in {}", duration_text(progress.seconds_to_save));
  if (progress.seconds_to_save > 0 && line.size() + save.size() <= columns)
    line += save;
  return line.substr(0, columns);
}

std::string progress_bar(const StepReport& report, const TrainProgress& progress, int columns) {
  constexpr int widest = 40;
  const double share = static_cast<double>(report.step) / static_cast<double>(std::max<Index>(1, progress.total_steps));
  const std::string beside = fmt::format(" {:3.0f}%  step {}  loss {:.3f}  left {} ", 100 * share, report.step,
                                         report.loss, duration_text(progress.seconds_left));
  const int free_columns = columns - 1 - static_cast<int>(beside.size()) - 2;  // 2: the brackets
  const int width = std::clamp(free_columns, 0, widest);
  const int filled = static_cast<int>(share * width);
  const std::string line = fmt::format("[{:#<{}}{:-<{}}]{}", "", filled, "", width - filled, beside);
  return line.substr(0, static_cast<std::size_t>(std::max(0, columns - 1)));
}

Console::Console(Index log_interval) : log_interval_(log_interval) {
  const char* const wanted = std::getenv("ESPALIER_PROGRESS");
  draws_bar_ = wanted != nullptr ? std::string_view(wanted) == "bar" : isatty(STDOUT_FILENO) == 1;
}

// A log that cannot be kept ends the run, a reader that has gone does not.
void Console::write(const std::string& text) {
  const std::string all = (bar_is_shown_ ? "\r\033[K" : "") + text;
  bar_is_shown_ = false;
  const bool written = std::fwrite(all.data(), 1, all.size(), stdout) == all.size() && std::fflush(stdout) == 0;
  if (!written && errno != EPIPE && errno != EIO)
    throw Error(ExitCode::write, {.what = "cannot write the log",
                                  .where = "standard output",
                                  .got = system_message(errno),
                                  .todo = "free some space there, or send the output to another place"});
  if (!written)
    std::clearerr(stdout);  // else the command would end as one whose answer is lost
}

void Console::note(const std::string& text) { write(printable_block(text, 2) + '\n'); }

void Console::step(const StepReport& report, const TrainProgress& progress) {
  if (report.step % log_interval_ == 0 || report.step == progress.total_steps)
    note(step_line(report, progress));
  if (!draws_bar_ || report.step == progress.total_steps)
    return;
  write(progress_bar(report, progress, terminal_columns()));
  bar_is_shown_ = true;
}

void Console::validation(Index step, Index total_steps, double loss) {
  note(fmt::format("step {:>6}/{} | validation loss {:.4f}", step, total_steps, loss));
}

}  // namespace espalier
