// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Fails in the way that its first argument names; check_faults.sh looks at what comes out.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>

#include "parallel/collectives/collectives.hpp"
#include "parallel/launch/failure.hpp"
#include "parallel/launch/runtime.hpp"

using espalier::Error;
using espalier::ExitCode;

namespace {

void call_collectives(const espalier::Communicator& world) {
  world.set_deadline(1);
  const espalier::ExecSpace exec;
  const auto part = espalier::allocate<float>(espalier::Category::other, "part", 4096);
  const auto whole = espalier::allocate<float>(espalier::Category::other, "whole", 4096 * world.size());
  for (int round = 0; round < 50; ++round) {
    espalier::all_reduce(exec, world, part);
    espalier::all_gather(exec, world, whole, part);
    espalier::broadcast(exec, world, part, round % world.size());
    espalier::barrier(world);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return espalier::run_job(argc, argv, [&](espalier::Runtime& runtime) {
    const std::string fault = argc > 1 ? argv[1] : "none";
    const espalier::Communicator& world = runtime.world();
    const bool guilty = world.rank() == world.size() - 1;
    if (fault == "all_throw")  // as for a bad config: every rank finds it
      throw Error(ExitCode::usage,
                  {.what = "unknown key", .where = "config.toml:3:1", .got = "stepz", .wanted = {}, .todo = "steps"});
    if (fault == "one_throws" && guilty)
      throw Error(ExitCode::data,
                  {.what = "a token file is too short", .where = {}, .got = {}, .wanted = {}, .todo = {}});
    if (fault == "two_throw" && world.rank() > 0)
      throw Error(ExitCode::data,
                  {.what = "a token file is too short", .where = {}, .got = {}, .wanted = {}, .todo = {}});
    if (fault == "one_defect" && guilty)
      throw std::out_of_range("vector::at");
    if (fault == "one_killed" && guilty)
      abort();
    const espalier::AtEarlyExit at_early_exit(
        // In one piece, like the error block: launchers mix what ranks write.
        [](const std::string& report) { std::cerr << "early exit: " + report + '\n'; });
    if (fault == "one_exits" && guilty)
      std::exit(0);
    if (fault == "all_exit")
      std::exit(0);
    if (fault == "collectives")  // of each kind many; tests/support/message_faults.cpp strikes
      call_collectives(world);
    const bool is_late = fault == "one_late" || fault == "one_late_duplicate";
    if (is_late && guilty)
      sleep(60);
    if (is_late)
      world.set_deadline(0.5);
    if (fault == "one_late_duplicate")
      world.duplicate("copy");
    espalier::barrier(world);
    if (world.rank() == 0)
      std::cout << runtime.describe() << '\n';
    return 0;
  });
}
