#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Looks at report.html in headless Chromium: light and dark, wide (1400 px) and narrow (380 and 360 px).

Draws two small runs, a real one on two ranks and an emulated pipeline of four, and asks the browser about each page: script
errors, anything that it wanted to load, elements beyond the edge, cards that are missing, labels that overlap or are too small,
contrast, tooltips, the switch of scales. A page with planted defects must be found defective. Exit status 77: no Chromium.

    ci/check_report.py [--pictures DIR]      the same pages as PNG, to look at
"""
import argparse
import html
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ESPALIER = ROOT / "build" / "espalier"
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
            *(f"emulate.{part}=5ms" for part in ("forward", "backward_input", "backward_weight"))]

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
const shown = element => { const box = element.getBoundingClientRect(); return box.width > 0 && box.height > 0; };
function problems_of(frame) {
  const inside = frame.contentWindow, page = frame.contentDocument, found = [...inside.found];
  const style = element => inside.getComputedStyle(element);
  const width = page.documentElement.clientWidth;
  if (page.documentElement.scrollWidth > width)
    found.push(`scrolls sideways: ${page.documentElement.scrollWidth} px wide in ${width}`);
  for (const element of page.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    if (shown(element) && (box.left < -1 || box.right > width + 1)) found.push("beyond the edge: " + name(element));
  }
  for (const id of cards) {
    const card = page.getElementById(id);
    if (!card) { found.push("no card " + id); continue; }
    const plots = [...card.querySelectorAll("svg[role=img]")].filter(shown);
    if (plots.length !== 1) found.push(`${plots.length} plots shown in ${id}`);
    for (const plot of plots)
      if (!plot.getAttribute("aria-label")) found.push("no accessible name in " + id);
    for (const axis of ["x", "y"]) {
      const boxes = [...card.querySelectorAll("text." + axis)].filter(shown).map(text => text.getBoundingClientRect());
      if (!boxes.length) found.push(`no labels on axis ${axis} of ${id}`);
      boxes.sort((a, b) => axis === "x" ? a.left - b.left : a.top - b.top);
      for (let i = 1; i < boxes.length; ++i)
        if (axis === "x" ? boxes[i].left < boxes[i - 1].right : boxes[i].top < boxes[i - 1].bottom - 4)
          found.push(`labels overlap on axis ${axis} of ${id}`);
    }
  }
  for (const text of page.querySelectorAll("text"))
    if (parseFloat(style(text).fontSize) < 11) { found.push("too small: " + name(text)); break; }
  const paper = style(page.querySelector(".card")).backgroundColor;
  if ((luminance(paper) < .2) !== dark) found.push("not drawn for a " + (dark ? "dark" : "light") + " page: " + paper);
  for (const selector of ["h1", "h2", ".subtitle", ".legend", ".tiles small"])
    for (const element of [...page.querySelectorAll(selector)].slice(0, 1))
      if (contrast(style(element).color, paper) < 4.5) found.push("too little contrast: " + name(element));
  const label = page.querySelector(".plot text.y");
  if (label && contrast(style(label).fill, paper) < 4.5) found.push("too little contrast: labels");
  for (const plot of page.querySelectorAll(".plot[data-x]")) {
    if (!shown(plot)) continue;
    const box = plot.querySelector("svg").getBoundingClientRect();
    plot.dispatchEvent(new inside.PointerEvent("pointermove", { clientX: box.left + box.width * .98, clientY: box.top + 20 }));
    const tip = plot.querySelector(".tip");
    if (!tip || !/^step \d+\n.+: -?\d/.test(tip.textContent)) found.push("no tooltip in " + plot.closest(".card").id);
    else if (tip.getBoundingClientRect().right > width + 1) found.push("tooltip beyond the edge");
  }
  const before = page.querySelector("#loss .view"), button = page.querySelector("#loss label:last-of-type");
  if (button) button.click();
  if (!before || shown(before)) found.push("the switch of the loss does not switch");
  return found;
}
addEventListener("load", () => {
  const found = {};
  for (const frame of document.querySelectorAll("iframe")) {
    try { found[frame.title] = problems_of(frame); } catch (error) { found[frame.title] = ["the check failed: " + error]; }
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
    run(mpiexec, "-n", "2", str(ESPALIER), "train", "run.toml", "run.directory=two ranks", cwd=work)
    run(mpiexec, "-n", "4", str(ESPALIER), "train", "run.toml", "run.directory=pipeline", *PIPELINE, cwd=work)
    return {name: (work / name / "report.html").read_text(encoding="utf-8") for name in ("two ranks", "pipeline")}


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
        f'<iframe title="{name}, {width} px" style="width:{width}px;height:900px;border:0" '
        f'srcdoc="{html.escape(page.replace("<head>", PROBE, 1))}"></iframe>'
        for name, page in pages.items() for width in WIDTHS)
    script = MEASURE.replace("CARDS", json.dumps(CARDS)).replace("DARK", json.dumps(dark))
    outer = work / "measure.html"
    outer.write_text(f'<!DOCTYPE html><meta charset="utf-8"><script>{script}</script><body>{frames}', encoding="utf-8")
    text = chromium(program, work, "--window-size=1600,1000", "--virtual-time-budget=10000", "--dump-dom", outer.as_uri(), dark=dark)
    if "RESULT{" not in text:
        sys.exit("check_report: error: Chromium gave no result")
    return json.loads(html.unescape(text.rpartition("RESULT{")[2].partition("END</pre>")[0].join(("{", ""))))


def planted(page: str) -> str:
    return (page.replace("</main>", '<div style="width:2000px">wide</div></main>').replace('id="memory"', 'id="gone"')
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
                    picture = (options.pictures / f"{name.replace(' ', '-')}-{scheme}.png").absolute()
                    chromium(program, work, "--window-size=1400,2300", f"--screenshot={picture}",
                             (work / name / "report.html").as_uri(), dark=dark)
        for where, found in measure(program, work, {"planted": planted(pages["pipeline"])}, False).items():
            for defect in ("scrolls sideways", "no card memory", "script error", "wanted to load"):
                if not any(problem.startswith(defect) for problem in found):
                    bad += 1
                    print(f"{where}: a planted defect was not found: {defect}")
        looked = len(pages) * len(WIDTHS) * 2
    print(f"check_report: {looked} views, {bad} problems", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
