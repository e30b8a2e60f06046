// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"
#include "planning/common_layout.hpp"
#include "planning/joint_job.hpp"
#include "planning/scaling.hpp"
#include "planning/search.hpp"

namespace espalier {

/// "gpt3-175b (174.6 B parameters) on 1024 devices: 128 nodes of 8 a100-80 with 80.00 GiB each, 1536 sequences of 2048
/// tokens", and a line that says so where nothing was fitted to runs on the device.
std::string problem_text(const PlanProblem& problem, int num_devices, Index global_batch);

/// One line a layout: rank, step time with its error, tokens per second, MFU or GEMM fraction, bubble and idle time,
/// memory, layout, mark if `train` cannot run it.
std::string ranking_text(const PlanProblem& problem, const std::vector<LayoutPrice>& prices, std::size_t most);

/// Step time by phase, and memory of every kind of stage by category.
std::string price_text(const PlanProblem& problem, const LayoutPrice& price);

/// "3 layouts differ by less than 5 %, too little to be sure ...", where the answer is one of several; else empty.
std::string alike_text(const PlanProblem& problem, const SearchResult& result);

/// "tensor 1 x data 64 x pipeline 1, ..., ZeRO-3 would be 4.1 % faster; train has no ZeRO-3 yet"; empty without one.
std::string not_built_text(const SearchResult& result);

/// "   64 of these devices train 3.4 times as many tokens per second (--devices 64)\n"; empty where none do.
std::string fewer_devices_text(const SearchResult& result);

/// What was not chosen: first the plain ideas, then the nearest meshes.
std::string rejections_text(const std::vector<PlainRejection>& plain, const SearchResult& result, std::size_t most);

/// Proposals side by side, with the reason where one is impossible or does not fit.
std::string comparison_text(const PlanProblem& problem, const std::vector<Layout>& layouts);

/// A point a line, in the columns of the ranking behind devices, batch and efficiency; what bends the curve, and from
/// which size on each goal holds.
std::string scaling_text(const PlanProblem& problem, const std::vector<ScalePoint>& points, const Goal& goal = {});

/// The layout on each machine beside that machine's own best, in the same columns behind what it loses; the goals.
/// Without a layout for all, each machine's own best, or why it has none.
std::string common_layout_text(const std::vector<PlanProblem>& problems, const CommonLayout& common,
                               const Goal& goal = {});

/// The same for programs. Each begins with what was asked: `model`, `parameters`, `sequence_length`, `cluster`,
/// `device`, `nodes`, `devices_per_node`, `device_memory_bytes`, `free_bytes` (of a device), and where it is one size
/// `devices` and `global_batch`; of several clusters `machines` has those of each. `ranking` and `rejections` have
/// `most` entries at most; `not_built` is the layout of SearchResult with its `gain`, or null; `goals`, `plain_ideas`;
/// of the answer `state_bytes`, `bottleneck`, `longest_beside_compute` and `changes`; `resolution`, the smallest
/// relative difference that a prediction resolves. With the `points` of a curve, `points` and the goals along it.
std::string search_json(const PlanProblem& problem, const LayoutSpace& space, const Goal& goal,
                        const std::vector<PlainRejection>& plain, const SearchResult& result, std::size_t most,
                        const std::vector<ScalePoint>& points = {});
/// Of a search that found nothing: an empty `ranking`, `rejections`, and the error as `no_layout`.
std::string no_layout_json(const PlanProblem& problem, const LayoutSpace& space, const ErrorReport& error,
                           const std::vector<PlainRejection>& plain, const SearchResult& result, std::size_t most);
/// `layouts`, an entry each: its price, or why it is impossible.
std::string layouts_json(const PlanProblem& problem, const LayoutSpace& space, const std::vector<Layout>& layouts);
/// `points`, an entry each, and `goals`.
std::string scaling_json(const PlanProblem& problem, const std::vector<ScalePoint>& points, const Goal& goal = {});
/// `layout` (null where none suits all), `machines`, `comparison` (sentences), `joint` (a job across two, or null), and
/// `no_layout` where an error is given.
std::string common_layout_json(const std::vector<PlanProblem>& problems, const LayoutSpace& space,
                               const CommonLayout& common, const Goal& goal = {}, const JointSearch* joint = nullptr,
                               const ErrorReport* error = nullptr);

}  // namespace espalier
