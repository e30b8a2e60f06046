// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/report_page.hpp"

namespace espalier::impl {

// Colours have the names of phases and categories (core/phases, core/memory_ledger). A plot is an SVG that fills its
// place; its labels lie outside of it, in the padding of .plot.
const char* const report_style = R"css(
:root {
  color-scheme: light dark;
  --ground: #f4f5f7; --paper: #ffffff; --ink: #1d2430; --muted: #59636f; --grid: #e8eaee; --rule: #c5cad2; --edge: #e1e4e9;
  --good: #18794e; --warn: #8a5a00; --bad: #c22f2f; --calm: #2563ab;
  --blue: #2f6fc9; --deep-blue: #1c4788; --orange: #ee9336; --deep-orange: #a35a0d; --green: #4aa564; --red: #d1495b;
  --pink: #d884b5; --wine: #8d3b72; --purple: #7a62c9; --teal: #2a9d98; --olive: #a59a2f; --grey: #98a1ad; --pale: #dde1e7;
  --on-blue: #ffffff; --on-orange: #1d2430;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #0e1116; --paper: #171b22; --ink: #e7eaef; --muted: #9ba6b4; --grid: #262c36; --rule: #46505e; --edge: #262c36;
    --good: #4cc38a; --warn: #f0b44c; --bad: #ff7b7b; --calm: #78b0ff;
    --blue: #5b9bf0; --deep-blue: #35649f; --orange: #f2a654; --deep-orange: #b57a35; --green: #5fbd7a; --red: #e86a7a;
    --pink: #e3a0c8; --wine: #b0619a; --purple: #9a85e0; --teal: #45b8b2; --olive: #c2b750; --grey: #77818e; --pale: #343b46;
    --on-blue: #0e1116; --on-orange: #0e1116;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 90rem; padding: 1.5rem clamp(.75rem, 2.5vw, 2.5rem) 3rem; background: var(--ground); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere;
}
h1 { margin: 0; font-size: clamp(1.35rem, 4vw, 1.9rem); line-height: 1.25; letter-spacing: -.01em; }
h2 { margin: 0; font-size: 1rem; }
p { margin: 0; }
ul, dl { margin: 0; padding: 0; list-style: none; }
.mark { color: var(--muted); font-size: .8rem; letter-spacing: .06em; text-transform: uppercase; }
.subtitle, .note, footer { color: var(--muted); font-size: .85rem; }
.state {
  display: inline-block; vertical-align: middle; padding: .1em .7em; border: 1px solid; border-radius: 1em;
  font-size: .8rem; font-weight: 600; letter-spacing: 0; color: var(--calm);
}
.completed { color: var(--good); } .failed { color: var(--bad); } .preempted { color: var(--warn); }
.cause {
  margin: .75rem 0 0; padding: .75rem 1rem; border-left: 3px solid var(--bad); border-radius: 4px; background: var(--paper);
  font-size: .8rem; white-space: pre-wrap;
}
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 9.5rem), 1fr)); gap: .75rem; margin: 1.25rem 0; }
.tiles li, .card { background: var(--paper); border: 1px solid var(--edge); border-radius: 10px; }
.tiles li { display: flex; flex-direction: column; padding: .7rem .9rem; }
.tiles span { color: var(--muted); font-size: .8rem; }
.tiles b { font-size: 1.35rem; font-weight: 650; line-height: 1.3; }
.tiles small { color: var(--muted); font-size: .8rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 19rem), 1fr)); gap: .15rem 2rem; margin-bottom: 1.25rem; }
.facts div { display: flex; gap: 1rem; padding: .3rem 0; border-bottom: 1px solid var(--edge); font-size: .875rem; }
.facts dt { flex: 0 0 5.5rem; color: var(--muted); }
.facts dd { margin: 0; min-width: 0; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem; }
.card { position: relative; min-width: 0; padding: 1rem 1.1rem; }
.whole { grid-column: 1 / -1; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin-top: .35rem; font-size: .8rem; }
.legend i { display: inline-block; width: .75em; height: .75em; margin-right: .4em; border-radius: 2px; background: var(--c); }
.note { margin-top: .5rem; }
#findings h3 { margin: .8rem 0 .2rem; color: var(--muted); font-size: .85rem; font-weight: 600; }
#findings ol { margin: 0; padding-left: 1.4rem; }
#findings li { font-size: .9rem; } #findings ol > li { margin: .35rem 0; }
#findings small { color: var(--muted); font-size: .8rem; }
#findings ul { margin-left: 1.1rem; list-style: disc; } #findings ul li { font-size: .82rem; color: var(--muted); }
#findings .changes { list-style: "\2192  "; } #findings .changes li { color: var(--ink); }
#gaps li { margin: .3rem 0 0 1.1rem; font-size: .85rem; list-style: disc; }
footer { margin-top: 1.5rem; }

.plot { position: relative; margin-top: .8rem; padding: 0 1rem 2.7rem var(--left); touch-action: pan-y; }
.plot svg { display: block; width: 100%; overflow: visible; }
.plot .paths { height: 100%; }
.plot[data-stacked] .paths { overflow: hidden; }
.plot text { fill: var(--muted); font-size: 12px; }
.plot .y { text-anchor: end; }
.plot .x, .number { text-anchor: middle; }
.plot .name { text-anchor: end; }
.plot .number { fill: var(--on-orange); font-size: 11px; pointer-events: none; }
.plot .number.forward { fill: var(--on-blue); }
.plot .number.odd { fill: #ffffff; }
.grid { stroke: var(--grid); }
.axis { stroke: var(--rule); }
.line { fill: none; stroke: var(--c); stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round; vector-effect: non-scaling-stroke; }
.area { fill: var(--c); }
.plot circle, .plot rect { fill: var(--c); }
.plot circle { stroke: var(--paper); }
[data-timeline] rect { stroke: var(--paper); stroke-width: .5; }
.predicted { fill-opacity: .55; }
.broken { stroke: var(--bad); stroke-width: 2; }
.mark-line { stroke: var(--warn); stroke-width: 1.5; stroke-dasharray: 2 3; }
.cursor { stroke: var(--muted); stroke-dasharray: 3 3; pointer-events: none; }
.tip {
  position: absolute; z-index: 1; padding: .35rem .6rem; border: 1px solid var(--rule); border-radius: 6px; background: var(--paper);
  font-size: .78rem; line-height: 1.45; white-space: pre; pointer-events: none; box-shadow: 0 2px 8px rgb(0 0 0 / .15);
}
.views { display: flex; flex-wrap: wrap; margin-top: .5rem; }
.views input { position: absolute; opacity: 0; }
.views label { padding: .1rem .7rem; border: 1px solid var(--rule); color: var(--muted); font-size: .8rem; cursor: pointer; }
.views label:first-of-type { border-radius: 6px 0 0 6px; }
.views label:last-of-type { border-left: 0; border-radius: 0 6px 6px 0; }
.views input:checked + label { background: var(--ink); border-color: var(--ink); color: var(--paper); }
.views input:focus-visible + label { outline: 2px solid var(--calm); outline-offset: 1px; }
.view { display: none; flex: 0 0 100%; min-width: 0; }
.views input:nth-of-type(1):checked ~ .view:nth-of-type(1), .views input:nth-of-type(2):checked ~ .view:nth-of-type(2) { display: block; }

.forward, .weights, .train { --c: var(--blue); } .forward.odd { --c: var(--deep-blue); }
.backward, .gradients, .validation { --c: var(--orange); } .backward.odd { --c: var(--deep-orange); }
.weight, .activations, .rate { --c: var(--green); }
.bubble { --c: var(--pale); }
.tensor_comm, .communication { --c: var(--red); } .pipeline_comm { --c: var(--pink); } .data_comm { --c: var(--wine); }
.optimizer, .norm { --c: var(--purple); } .data, .workspace, .throughput { --c: var(--teal); } .checkpoint { --c: var(--olive); }
.other { --c: var(--grey); }
@media (max-width: 44rem) { .wide { display: none; } .card { padding: .85rem .75rem; } .plot { padding-right: .75rem; } }
@media print { body { background: none; } .card { break-inside: avoid; } }
)css";

// Reads values back from the paths, in their square of 1000 by 1000, and shows those nearest to the pointer.
const char* const report_script = R"js(
"use strict";
for (const plot of document.querySelectorAll(".plot[data-x]")) {
  const [x0, x1] = plot.dataset.x.split(" ").map(Number), [y0, y1] = plot.dataset.y.split(" ").map(Number);
  const svg = plot.querySelector("svg"), stacked = "stacked" in plot.dataset;
  const value = y => "log" in plot.dataset ? y0 * Math.pow(y1 / y0, 1 - y / 1000) : y0 + (y1 - y0) * (1 - y / 1000);
  const text = v => Number((v / plot.dataset.factor).toPrecision(4)) + " " + plot.dataset.unit;
  let curves, cursor, tip;
  const read = path => {
    const points = Array.from(path.getAttribute("d").matchAll(/[ML](-?[\d.]+),(-?[\d.]+)/g), m => [+m[1], +m[2]]);
    const half = points.length / 2;
    const all = stacked && half >= 1 && half % 1 === 0
      ? points.slice(0, half).map(([x, y], i) => [x, value(y) - value(points[2 * half - 1 - i][1])])
      : points.map(([x, y]) => [x, value(y)]);
    return { name: path.dataset.name, points: all };
  };
  const nearest = (points, x) => points.reduce((best, p) => Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best, [Infinity]);
  const show = event => {
    curves ??= Array.from(svg.querySelectorAll("path"), read).filter(c => c.points.length);
    if (!curves.length) return;
    const box = svg.getBoundingClientRect(), outer = plot.getBoundingClientRect();
    const wanted = Math.min(1000, Math.max(0, 1000 * (event.clientX - box.left) / box.width));
    const at = nearest(curves[0].points, wanted)[0];
    const lines = curves.map(c => [c.name, nearest(c.points, at)]).filter(([, p]) => Math.abs(p[0] - at) < 15);
    if (!cursor) {
      cursor = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "line"));
      cursor.setAttribute("class", "cursor");
      cursor.setAttribute("y2", "100%");
      tip = plot.appendChild(document.createElement("div"));
      tip.className = "tip";
    }
    cursor.setAttribute("x1", at / 10 + "%");
    cursor.setAttribute("x2", at / 10 + "%");
    tip.textContent = ["step " + Math.round(x0 + (x1 - x0) * at / 1000)]
      .concat(lines.map(([name, p]) => name + ": " + text(p[1]))).join("\n");
    cursor.style.display = tip.style.display = "";
    const x = box.left - outer.left + box.width * at / 1000;
    tip.style.left = Math.max(0, x + 12 + tip.offsetWidth > outer.width ? x - 12 - tip.offsetWidth : x + 12) + "px";
    tip.style.top = "4px";
  };
  plot.addEventListener("pointermove", show);
  plot.addEventListener("pointerdown", show);
  plot.addEventListener("pointerleave", () => { if (cursor) cursor.style.display = tip.style.display = "none"; });
}
)js";

}  // namespace espalier::impl
