// The data of a run (docs/report.md lists the fields), numbers as text, and elements. Every text from the data is set as text,
// never as markup.
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const narrow = matchMedia("(max-width: 44rem)"), dark = matchMedia("(prefers-color-scheme: dark)");

// ---- Texts ----

// Four digits; powers of ten only where a plain number would be long.
function numberText(value, digits = 4) {
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size > 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  return Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 12 });
}
const SECONDS = [["ns", 1e-9], ["\u00b5s", 1e-6], ["ms", 1e-3], ["s", 1], ["min", 60], ["h", 3600]];
const BYTES = [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40]];
const COUNTS = [["", 1], ["k", 1e3], ["M", 1e6], ["B", 1e9], ["T", 1e12]];
const PLAIN = [["", 1]];
// The largest unit in which the value is at least 1.
const unitOf = (value, units) => units.findLast(unit => Math.abs(value) >= unit[1] * (1 - 1e-9)) ?? units[0];
function inUnit(value, units, digits = 3) {
  if (typeof value !== "number") return String(value);
  const [name, factor] = unitOf(value, units);
  return numberText(value / factor, digits) + (units === COUNTS ? "" : " ") + name;
}
const secondsText = value => inUnit(value, SECONDS), bytesText = value => inUnit(value, BYTES);
const countText = value => inUnit(value, COUNTS), percentText = (share, digits = 1) => (100 * share).toFixed(digits) + " %";
const differenceText = (measured, predicted) => (measured >= predicted ? "+" : "") + percentText(measured / predicted - 1);
const counted = (count, noun) => `${numberText(count, 10)} ${noun}${count === 1 ? "" : "s"}`;
const spaced = word => word.replaceAll("_", " ");

// ---- Elements ----

// element("p", {class: "note"}, "text", child...)
function element(name, attributes = {}, ...children) {
  const result = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) result.setAttribute(key, value);
  result.append(...children.filter(child => child !== "" && child !== null));
  return result;
}
// A phase, a category of memory, or a colour of page.css.
const shadeOf = name => data.colours[name] ?? name;
const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + shadeOf(name)).trim();

function card(id, title, { subtitle = "", whole = false } = {}) {
  const result = element("section", { class: whole ? "card whole" : "card", id, "aria-labelledby": id + "-title" },
    element("h2", { id: id + "-title" }, title), subtitle && element("p", { class: "subtitle" }, subtitle));
  document.getElementById("main").append(result);
  return result;
}

function legend(place, entries) {  // [name, colour]...
  place.append(element("ul", { class: "legend" }, ...entries.map(([name, shade]) => {
    const swatch = element("i");
    swatch.style.background = `var(--${shadeOf(shade)})`;
    return element("li", {}, swatch, name);
  })));
}
const note = (place, text) => text && place.append(element("p", { class: "note" }, text));
