// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "io/records/metrics.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier::test {

/// What came of one start of a run.
struct Start {
  TrainOutcome outcome;
  std::vector<std::string> notes;                     // of rank 0
  std::vector<std::pair<Index, double>> validations;  // of rank 0: step and loss

  /// Has one note both texts in it? Only rank 0 knows; the others say yes.
  bool says(const std::string& text, const std::string& more = "") const {
    return world().rank() != 0 || std::any_of(notes.begin(), notes.end(), [&](const std::string& note) {
             return note.find(text) != std::string::npos && note.find(more) != std::string::npos;
           });
  }
};

/// @param request what asks this rank to stop
inline Start start_run(const RunConfig& config, TrainOptions options,
                       const std::function<std::string()>& request = {}) {
  Start start;
  const Layout layout = make_run_layout(config, world().size());
  const ProcessMesh mesh(world(), layout.mesh());
  world().rank_progress().step_begins(-1);  // not that of the start before
  world().rank_progress().operation_begins(-1, "", -1, -1);
  TrainEvents events;
  events.note = [&](const std::string& text) { start.notes.push_back(text); };
  events.validation = [&](Index step, double loss) { start.validations.emplace_back(step, loss); };
  start.outcome = train(config, options, layout, mesh, events, request);
  barrier(world());
  return start;
}

inline TrainOptions stop_after(Index steps) { return {"auto", "", steps}; }
inline TrainOptions resume_from(const Path& checkpoint) { return {checkpoint.string(), "", 0}; }
inline TrainOptions init_from(const Path& checkpoint) { return {"auto", checkpoint.string(), 0}; }

inline RunConfig config_in(const SharedFolder& folder, const std::string& name, std::vector<std::string> more = {}) {
  more.push_back("run.directory=\"" + (folder / name).string() + "\"");
  more.emplace_back("run.steps=8");
  return tiny_config(folder, world().size(), more);
}

/// The losses of a run as text: equal text is equal bits.
inline std::vector<std::string> losses(const RunConfig& config) {
  std::vector<std::string> texts;
  for (const auto& line : read_metrics(Path(config.run.directory) / "metrics.jsonl"))
    texts.push_back(line.at("step").dump() + " " + line.at("loss").dump() + " " + line.at("gradient_norm").dump());
  return texts;
}

/// As if the last start had failed instead of ending well: what it saved may then never have been there.
inline void forget_good_end(const Path& run) {
  barrier(world());
  if (world().rank() == 0) {
    nlohmann::json record = nlohmann::json::parse(read_file(run / "run.json", ExitCode::data));
    record["state"] = "failed";
    write_file_atomically(run / "run.json", record.dump(1) + "\n");
  }
  barrier(world());
}

/// Every rank is refused, with this code and these words.
template <class Action>
void expect_refusal(ExitCode code, const std::vector<std::string>& parts, const Action& action) {
  try {
    action();
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "no " << part << " in\n" << error.what();
  }
  barrier(world());
}

/// Something that rank 0 does to the files, between two starts.
template <class Action>
void on_root(const Action& action) {
  barrier(world());
  if (world().rank() == 0)
    action();
  barrier(world());
}

}  // namespace espalier::test
