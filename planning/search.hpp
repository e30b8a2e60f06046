// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planning/layout_space.hpp"

namespace espalier {

/// Why a layout is not the answer.
enum class Verdict {
  impossible,
  too_large,
  slower,
  alike,  ///< faster by less than the prediction tells apart, and less simple
  not_searched
};

struct Rejection {
  Layout layout;
  Verdict verdict = Verdict::impossible;
  std::string reason;  ///< in words: "does not fit: ...", "tensor 16 does not divide ...", "slower by 12 %: ..."
};

/// What a search found.
struct SearchResult {
  std::vector<LayoutPrice> ranking;  ///< the answer, then the others, fastest first; of each mesh of ranks the best
                                     ///< choice of all else, of that of the answer also the simplest
  std::size_t num_alike = 0;         ///< of them, that the prediction does not tell from the fastest
  /// One of each mesh that is not the answer's, and the fastest of the answer's mesh where a simpler one is the answer:
  /// those of the ranking in its order, slower ones, those too large, smallest first, impossible ones.
  std::vector<Rejection> rejections;
  /// On fewer devices, faster than the answer: many numbers of devices can hardly be divided. Of recommend_layouts().
  std::optional<LayoutPrice> fewer_devices = {};
  std::size_t num_considered = 0;
  std::size_t num_impossible = 0;
  std::size_t num_too_large = 0;
  std::size_t smallest_bytes = 0;  ///< what the smallest layout needs of a device, whether it fits or not
  /// The fastest layout that `train` cannot run yet, where it is faster than all of the ranking by more than
  /// `worthwhile`.
  std::optional<LayoutPrice> not_built = {};
  /// Share by which it is faster than the answer. @pre there is one
  double gain_of_not_built() const { return ranking.front().step_seconds / not_built->step_seconds - 1; }
};

/// How much machinery a layout needs: of those that are as fast as each other that with least wins.
int complexity(const Layout& layout);

/// Which layout is the answer.
enum class Prefer {
  fastest,
  simplest  ///< of those that the prediction does not tell from the fastest: fewest stages, then least tensor
            ///< parallelism, then the lowest ZeRO stage, then the fastest
};

/// What Prefer::simplest prefers, in words.
inline constexpr const char* simplest_text =
    "the fewest stages, then the least tensor parallelism, then the lowest ZeRO stage";

/// Prices the whole space in closed form, simulates the `most_simulated` best meshes, ranks them. Deterministic.
SearchResult search_layouts(const PlanProblem& problem, const LayoutSpace& space, std::size_t most_simulated = 16,
                            Prefer prefer = Prefer::fastest);

/// search_layouts() of what `train` runs, whatever the model; of all layouts where none of those fits.
/// @param space becomes the one that was searched
SearchResult search_runnable(const PlanProblem& problem, LayoutSpace& space, std::size_t most_simulated = 16,
                             Prefer prefer = Prefer::fastest);

/// search_runnable() for the simplest.
SearchResult search_recommended(const PlanProblem& problem, LayoutSpace& space);

/// The answer of `plan`: search_runnable() for the simplest, and what a layout that is not built yet would bring.
SearchResult recommend_layouts(const PlanProblem& problem, LayoutSpace& space);

/// why_impossible(); where only the batch does not divide, also what is wrong with one that does: "does not fit: ...".
std::string impossible_text(const PlanProblem& problem, const Layout& layout);

/// Why a proposal that everybody makes first is not the answer.
struct PlainRejection {
  std::string name;     ///< "data parallelism alone"
  Rejection rejection;  ///< its reason may be that it is faster, but not runnable or not in the space
};

/// Data parallelism alone, with ZeRO-3, tensor parallelism alone, the deepest pipeline without micro-batches and with,
/// for the devices and the batch of the space, each with the recomputation and micro-batch that suit it, whatever is
/// fixed (its reason then says so); for long sequences context parallelism, unless it was searched. Without those that
/// `best` is one of.
/// @param best what was chosen instead; null where the search found nothing
std::vector<PlainRejection> plain_rejections(const PlanProblem& problem, const LayoutSpace& space,
                                             const LayoutPrice* best);

}  // namespace espalier
