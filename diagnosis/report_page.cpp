// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/report_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planning/markup.hpp"

namespace espalier {
namespace {

// Those that the style has a colour for.
constexpr std::array<std::string_view, 4> known_states = {"running", "completed", "preempted", "failed"};

std::string head_html(const ReportPage& page) {
  const bool known = std::find(known_states.begin(), known_states.end(), page.state) != known_states.end();
  const bool spoilt = !page.verdict.empty();  // then nothing is green
  std::string text = fmt::format(
      "<header>\n<p class=\"mark\">Espalier report</p>\n<h1>{} <span class=\"state {}\">{}</span>{}</h1>\n<p "
      "class=\"subtitle\">{}</p>\n",
      html_escaped(page.title), known && !spoilt ? page.state : "running", html_escaped(page.state),
      spoilt ? fmt::format(" <span class=\"state failed\">{}</span>", html_escaped(page.verdict)) : "",
      html_escaped(page.subtitle));
  if (!page.cause.empty())
    text += fmt::format("<pre class=\"cause\">{}</pre>\n", html_escaped(page.cause));
  text += "<ul class=\"tiles\">\n";
  for (const ReportTile& tile : page.tiles)
    text += fmt::format("<li><span>{}</span> <b>{}</b> <small>{}</small></li>\n", html_escaped(tile.name),
                        html_escaped(tile.value), html_escaped(tile.detail));
  text += "</ul>\n<dl class=\"facts\">\n";
  for (const ReportFact& fact : page.facts)
    text += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", html_escaped(fact.name), html_escaped(fact.value));
  return text + "</dl>\n</header>\n";
}

std::string legend_html(const std::vector<LegendEntry>& legend) {
  if (legend.empty())
    return {};
  std::string text = "<ul class=\"legend\">";
  for (const LegendEntry& entry : legend)
    text += fmt::format("<li><i class=\"{}\"></i>{}</li>", entry.colour, html_escaped(entry.name));
  return text + "</ul>\n";
}

std::string list_html(const char* name, const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines)
    text += fmt::format("<li>{}</li>", html_escaped(line));
  return text.empty() ? text : fmt::format("<ul class=\"{}\">{}</ul>", name, text);
}

std::string findings_html(const std::vector<ReportFinding>& findings) {
  std::string text = "<section class=\"card whole\" id=\"findings\"><h2>What stands out</h2>\n";
  if (findings.empty())
    return text + "<p class=\"subtitle\">Nothing.</p></section>\n";
  text += "<p class=\"subtitle\">As espalier diagnose tells it.</p>\n";
  const std::string* last = nullptr;
  for (const ReportFinding& finding : findings) {
    if (last == nullptr || *last != finding.heading)
      text += fmt::format("{}<h3>{}</h3>\n<ol>\n", last == nullptr ? "" : "</ol>\n", html_escaped(finding.heading));
    last = &finding.heading;
    text += fmt::format("<li><b>{}</b>{}{}{}</li>\n", html_escaped(finding.title),
                        finding.cost.empty() ? "" : fmt::format(" <small>{}</small>", html_escaped(finding.cost)),
                        list_html("evidence", finding.evidence), list_html("changes", finding.changes));
  }
  return text + "</ol>\n</section>\n";
}

// Without script: the checked button shows its view, by the style.
std::string views_html(const ReportCard& card) {
  if (card.views.size() == 1)
    return card.views.front().plot;
  std::string buttons;
  std::string plots;
  for (const ReportView& view : card.views) {
    const std::string id = fmt::format("{}-{}", card.id, view.name);
    buttons += fmt::format("<input type=\"radio\" name=\"{0}-view\" id=\"{1}\"{2}><label for=\"{1}\">{3}</label>\n",
                           card.id, id, buttons.empty() ? " checked" : "", html_escaped(view.name));
    plots += fmt::format("<div class=\"view\">{}</div>\n", view.plot);
  }
  return fmt::format("<div class=\"views\" role=\"group\" aria-label=\"{}: how it is drawn\">\n{}{}</div>\n",
                     html_escaped(card.title), buttons, plots);
}

std::string card_html(const ReportCard& card) {
  std::string text = fmt::format(
      "<section class=\"card{0}\" id=\"{1}\" aria-labelledby=\"{1}-title\" style=\"--left:{2}\">\n<h2 "
      "id=\"{1}-title\">{3}</h2>\n",
      card.is_wide ? " whole" : "", card.id, card.left, html_escaped(card.title));
  if (!card.subtitle.empty())
    text += fmt::format("<p class=\"subtitle\">{}</p>\n", html_escaped(card.subtitle));
  text += legend_html(card.legend);
  if (!card.views.empty())
    text += views_html(card);
  if (!card.note.empty())
    text += fmt::format("<p class=\"note\">{}</p>\n", html_escaped(card.note));
  return text + "</section>\n";
}

std::string gaps_html(const std::vector<std::string>& gaps) {
  if (gaps.empty())
    return {};
  std::string text = "<section class=\"card whole\" id=\"gaps\"><h2>What this page could not show</h2>\n<ul>\n";
  for (const std::string& gap : gaps)
    text += fmt::format("<li>{}</li>\n", html_escaped(gap));
  return text + "</ul></section>\n";
}

}  // namespace

std::string to_html(const ReportPage& page) {
  std::string text = fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{} - Espalier report</title>
<style>{}</style>
</head>
<body>
)",
                                 html_escaped(page.title), impl::report_style);
  text += head_html(page) + "<main>\n" + findings_html(page.findings);
  for (const ReportCard& card : page.cards)
    text += card_html(card);
  text += gaps_html(page.gaps) + "</main>\n";
  return text + fmt::format("<footer>{}</footer>\n<script>{}</script>\n</body>\n</html>\n", html_escaped(page.footer),
                            impl::report_script);
}

}  // namespace espalier
