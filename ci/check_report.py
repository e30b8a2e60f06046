#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Looks at report.html in headless Chromium: light and dark, wide (1400 px) and narrow (380 and 360 px).

Draws two small runs, a real one on two ranks and an emulated pipeline of four, and asks the browser about each page: script
errors, anything that it wanted to load, elements beyond the edge, cards that are missing, charts that are empty, labels that overlap
or are too small, contrast, tooltips, zoom, the switch of scales. A page with injected defects must be found defective. Exit status 77: no Chromium.

    ci/check_report.py [--pictures DIR]      the same pages as PNG, to look at
"""
import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ESPALIER = ROOT / "build" / "espalier"
TWO = "two <script>alert(1) & <b>ranks"  # a name that would be markup
WIDTHS = (1400, 380, 360)
CARDS = ("loss", "learning-rate", "gradient-norm", "throughput", "memory", "phases", "ranks", "timeline")
CONFIG = """
[model]
vocab_size = 256
max_sequence_length = 16
num_layers = 8
hidden_size = 16
num_heads = 2
ffn_hidden_size = 32
[data]
train = ["train.bin"]
validation = ["train.bin"]
[batch]
global_batch_size = 8
micro_batch_size = 1
[run]
steps = 120
eval_interval = 40
eval_samples = 16
trace_steps = 1
[checkpoint]
interval = 60
"""
PIPELINE = ["parallel.pipeline=4", "parallel.schedule=interleaved", "parallel.virtual_stages=2", "run.steps=4",
            *(word for part in ("forward", "backward_input", "backward_weight") for word in ("--emulate", f"{part}=5ms"))]

# Before the page: what its script does wrong, and what its security policy refuses.
PROBE = """<head><script>window.found = [];
addEventListener("error", event => found.push("script error: " + event.message));
addEventListener("securitypolicyviolation", event => found.push("wanted to load " + event.blockedURI));
</script>"""

# Runs beside the pages, which are frames of this one.
MEASURE = r"""
const cards = CARDS, dark = DARK;
const luminance = colour => {
  const linear = colour.match(/[\d.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * linear[0] + .7152 * linear[1] + .0722 * linear[2];
};
const contrast = (a, b) => { const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y); return (high + .05) / (low + .05); };
const name = element => element.tagName + (element.id ? "#" + element.id : "." + (element.getAttribute("class") || "")) + " \"" + element.textContent.slice(0, 30) + "\"";
const numbersOf = scale => scale.ticks.map((tick, i) => [scale.getPixelForTick(i), String(tick.label)]).filter(each => each[1] !== "");
function problems_of(frame) {
  const inside = frame.contentWindow, page = frame.contentDocument, found = inside.found;
  const style = element => inside.getComputedStyle(element);
  const width = page.documentElement.clientWidth;
  if (page.documentElement.scrollWidth > width)
    found.push(`scrolls sideways: ${page.documentElement.scrollWidth} px wide in ${width}`);
  for (const element of page.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    if (box.width > 0 && box.height > 0 && (box.left < -1 || box.right > width + 1)) found.push("beyond the edge: " + name(element));
  }
  if (!page.querySelector("h1")?.textContent.startsWith(frame.dataset.run)) found.push("another name: " + name(page.querySelector("h1")));
  if (!(page.querySelector("#findings")?.getBoundingClientRect().top < page.querySelector("#loss")?.getBoundingClientRect().top))
    found.push("the findings are not before the charts");
  if (inside.Chart.defaults.font.size < 11) found.push("too small: labels");
  const paper = style(page.querySelector(".card")).backgroundColor;
  if ((luminance(paper) < .2) !== dark) found.push("not drawn for a " + (dark ? "dark" : "light") + " page: " + paper);
  for (const selector of ["h1", "h2", ".subtitle", ".legend", ".tiles small", "button"])
    for (const element of [...page.querySelectorAll(selector)].slice(0, 1))
      if (contrast(style(element).color, paper) < 4.5) found.push("too little contrast: " + name(element));
  const chartOf = id => { const canvas = page.querySelector(`#${id} canvas`); return canvas && inside.Chart.getChart(canvas); };
  for (const id of cards) {
    if (!page.getElementById(id)) { found.push("no card " + id); continue; }
    const chart = chartOf(id), canvas = chart?.canvas;
    if (!chart || page.querySelectorAll(`#${id} canvas`).length !== 1) { found.push("not one chart in " + id); continue; }
    if (canvas.getAttribute("role") !== "img" || !canvas.getAttribute("aria-label")) found.push("no accessible name in " + id);
    const pixels = new Uint32Array(chart.ctx.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
    if (new Set(pixels).size < 10) found.push("an empty chart in " + id);
    for (const [axis, scale] of Object.entries(chart.scales)) {
      chart.ctx.font = `${inside.Chart.defaults.font.size}px ${inside.Chart.defaults.font.family}`;
      const labels = numbersOf(scale).sort((a, b) => a[0] - b[0]);
      if (!labels.length) found.push(`no labels on axis ${axis} of ${id}`);
      const size = text => axis === "x" ? chart.ctx.measureText(text).width : inside.Chart.defaults.font.size;
      for (let i = 1; i < labels.length; ++i)
        if (labels[i][0] - labels[i - 1][0] < (size(labels[i][1]) + size(labels[i - 1][1])) / 2)
          found.push(`labels overlap on axis ${axis} of ${id}: ${labels[i - 1][1]}, ${labels[i][1]}`);
      const shade = page.createElement("i");
      shade.style.color = scale.options.ticks.color;
      if (contrast(page.body.appendChild(shade) && style(shade).color, paper) < 4.5) found.push(`too little contrast: axis ${axis} of ${id}`);
      shade.remove();
    }
  }
  const event = (chart, type, x, y) => {
    const box = chart.canvas.getBoundingClientRect();
    return new inside.PointerEvent(type, { bubbles: true, clientX: box.left + x, clientY: box.top + y });
  };
  // The tooltip of what Chart.js finds there. (Events reach it with the next frame only, which a hidden browser may never draw.)
  const tooltip = (chart, x, y) => {
    const { mode, axis, intersect } = chart.options.interaction;
    const chosen = chart.getElementsAtEventForMode({ native: null, type: "mousemove", x, y }, mode, { axis, intersect }, true);
    chart.tooltip.setActiveElements(chosen.map(each => ({ datasetIndex: each.datasetIndex, index: each.index })), { x, y });
    chart.tooltip.update(true);
    return [chart.tooltip.title, ...(chart.tooltip.body ?? []).map(each => each.lines)].join("\n");
  };
  for (const id of ["loss", "gradient-norm", "phases"]) {
    const chart = chartOf(id), area = chart.chartArea, tip = chart.tooltip;
    const text = tooltip(chart, area.left + .98 * area.width, area.top + 20);
    if (!/^step \d+\n.+: -?\d/.test(text)) found.push(`no tooltip in ${id}: ${text}`);
    else if (tip.x < 0 || tip.x + tip.width > chart.width + 1) found.push("tooltip beyond the edge of " + id);
  }
  const timeline = chartOf("timeline"), bars = timeline?.getDatasetMeta(0).data ?? [];
  const wide = [...bars].sort((a, b) => Math.abs(b.x - b.base) - Math.abs(a.x - a.base))[0];
  if (timeline && !/^rank \d+\n.+: [\d.]+ \S*s/.test(tooltip(timeline, (wide.x + wide.base) / 2, wide.y))) found.push("no tooltip in timeline");
  const loss = chartOf("loss"), norm = chartOf("gradient-norm"), whole = [loss.scales.x.min, loss.scales.x.max];
  for (const [type, share] of [["pointerdown", .25], ["pointermove", .5], ["pointerup", .75]])
    loss.canvas.dispatchEvent(event(loss, type, loss.chartArea.left + share * loss.chartArea.width, 60));
  const zoomed = [loss, norm].map(chart => (chart.scales.x.max - chart.scales.x.min) / (whole[1] - whole[0]));
  if (zoomed.some(share => Math.abs(share - .5) > .1)) found.push(`the charts over steps do not zoom together: ${zoomed}`);
  const reset = page.querySelector("#gradient-norm button:last-of-type");
  if (reset.hidden) found.push("no button for the whole after a zoom");
  reset.click();
  if (loss.scales.x.min !== whole[0] || loss.scales.x.max !== whole[1] || !reset.hidden) found.push("a zoom is not taken back");
  page.querySelector("#loss button").click();
  if (chartOf("loss").scales.y.type !== "logarithmic") found.push("the switch of the loss does not switch");
  return found;
}
addEventListener("load", () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    try { found[frame.title] = problems_of(frame); }
    catch (error) { found[frame.title] = [...frame.contentWindow.found, "the check failed: " + error.stack]; }
  }
  const result = document.createElement("pre");
  result.id = "result";
  result.textContent = "RESULT" + JSON.stringify(found) + "END";
  document.body.append(result);
});
"""


def run(*command: str, cwd: Path) -> str:
    process = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
                             env={**os.environ, "OMP_NUM_THREADS": "1"})
    if process.returncode:
        sys.exit(f"check_report: error: {' '.join(command)} ended with {process.returncode}:\n{process.stdout}")
    return process.stdout


def draw_runs(work: Path) -> dict[str, str]:
    """The pages of two runs, by name."""
    mpiexec = shutil.which("mpiexec.mpich") or "mpiexec"
    (work / "text.txt").write_text("\n".join(str(i) for i in range(4000)), encoding="utf-8")
    (work / "run.toml").write_text(CONFIG, encoding="utf-8")
    run(str(ESPALIER), "data", "pack", "--output", "train.bin", "text.txt", cwd=work)
    run(mpiexec, "-n", "2", str(ESPALIER), "train", "run.toml", f"run.directory={TWO}", cwd=work)
    run(mpiexec, "-n", "4", str(ESPALIER), "train", "run.toml", "run.directory=pipeline", *PIPELINE, cwd=work)
    return {name: (work / name / "report.html").read_text(encoding="utf-8") for name in (TWO, "pipeline")}


def chromium(program: str, work: Path, *arguments: str, dark: bool) -> str:
    # Root may not have a sandbox; the page is ours.
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={work / 'profile'}"]
    if dark:
        flags.append("--force-dark-mode")
    process = subprocess.run([program, *flags, *arguments], text=True, capture_output=True, timeout=60)
    return process.stdout


def measure(program: str, work: Path, pages: dict[str, str], dark: bool) -> dict[str, list[str]]:
    """What is wrong, by page and width."""
    frames = "".join(
        f'<iframe title="{html.escape(name)}, {width} px" data-run="{html.escape(name)}" style="width:{width}px;height:900px;border:0" '
        f'srcdoc="{html.escape(page.replace("<head>", PROBE, 1))}"></iframe>'
        for name, page in pages.items() for width in WIDTHS)
    script = MEASURE.replace("CARDS", json.dumps(CARDS)).replace("DARK", json.dumps(dark))
    outer = work / "measure.html"
    outer.write_text(f'<!DOCTYPE html><meta charset="utf-8"><script>{script}</script><body>{frames}', encoding="utf-8")
    text = chromium(program, work, "--window-size=1600,1000", "--virtual-time-budget=10000", "--dump-dom", outer.as_uri(), dark=dark)
    if "RESULT{" not in text:
        sys.exit("check_report: error: Chromium gave no result")
    return json.loads(html.unescape(text.rpartition("RESULT{")[2].partition("END</pre>")[0].join(("{", ""))))


def injected(page: str) -> str:
    return (page.replace("</main>", '<div style="width:2000px">wide</div></main>').replace("if (data.memory) showMemory();", "")
            .replace("</body>", '<script>undefined_name()</script><img src="https://example.org/x.png"></body>'))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="keep a PNG of each page")
    options = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        print("check_report: no Chromium here", file=sys.stderr)
        return 77
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pages = draw_runs(work)
        for dark in (False, True):
            scheme = "dark" if dark else "light"
            for where, found in measure(program, work, pages, dark).items():
                bad += len(found)
                for problem in found:
                    print(f"{where}, {scheme}: {problem}")
            if options.pictures:
                options.pictures.mkdir(parents=True, exist_ok=True)
                for name in pages:
                    for width, height in ((1400, 2600), (380, 5200)):
                        picture = (options.pictures / f"{re.sub('[^a-z]+', '-', name)}-{scheme}-{width}.png").absolute()
                        chromium(program, work, f"--window-size={width},{height}", "--virtual-time-budget=2000",
                                 f"--screenshot={picture}", (work / name / "report.html").as_uri(), dark=dark)
        for where, found in measure(program, work, {"pipeline": injected(pages["pipeline"])}, False).items():
            for defect in ("scrolls sideways", "no card memory", "script error", "wanted to load"):
                if not any(problem.startswith(defect) for problem in found):
                    bad += 1
                    print(f"{where}: an injected defect was not found: {defect}")
        looked = len(pages) * len(WIDTHS) * 2
    print(f"check_report: {looked} views, {bad} problems", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
