// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// One number that a reader looks for first.
struct ReportTile {
  std::string name;
  std::string value = {};
  std::string detail = {};  ///< in small print
};

struct ReportFact {
  std::string name;
  std::string value = {};
};

struct LegendEntry {
  std::string name;
  std::string colour;  ///< a CSS class
};

/// A plot, and the same drawn in other ways, between which the reader switches.
struct ReportView {
  std::string name;       ///< "linear"
  std::string plot = {};  ///< HTML, from chart.hpp
};

struct ReportCard {
  std::string id;  ///< [a-z-]: the card's element
  std::string title;
  std::string subtitle = {};  ///< what is drawn, and its unit
  std::vector<LegendEntry> legend = {};
  std::vector<ReportView> views = {};
  std::string left = "3.6rem";  ///< CSS width of the labels of the vertical axis
  std::string note = {};        ///< below the plot; the whole card where there is no plot
  bool is_wide = false;         ///< over all columns
};

/// What `diagnose` says, one of it.
struct ReportFinding {
  std::string heading;  ///< over those of a concern
  std::string title = {};
  std::string cost = {};  ///< "0.2 s of a step, 40 %"
  std::vector<std::string> evidence = {};
  std::vector<std::string> changes = {};
};

/// Plain text everywhere but in ReportView::plot: to_html() escapes it.
struct ReportPage {
  std::string title;
  std::string subtitle = {};
  std::string state = {};    ///< of run.json
  std::string verdict = {};  ///< of a run that a finding has spoilt, in a word or two
  std::string cause = {};    ///< why it ended, or what has spoilt it
  std::vector<ReportTile> tiles = {};
  std::vector<ReportFact> facts = {};
  std::vector<ReportFinding> findings = {};
  std::vector<ReportCard> cards = {};
  std::vector<std::string> gaps = {};  ///< what is missing, a sentence each
  std::string footer = {};
};

/// One file that needs no other: styles and script lie inside, and its security policy forbids it to load anything.
std::string to_html(const ReportPage& page);

namespace impl {
extern const char* const report_style;
extern const char* const report_script;
}  // namespace impl

}  // namespace espalier
