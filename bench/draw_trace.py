#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Draws one step of RUN/trace/trace.json as an SVG timeline: one row a rank, below it what went on in the background.

    bench/draw_trace.py runs/mine/trace/trace.json docs/pictures/mine.svg --title "1f1b, 4 stages"

For the pictures of docs/parallelism.md; in Perfetto the same file shows every detail.
"""
import argparse
import json
from html import escape
from pathlib import Path

WIDTH, LEFT, RIGHT, TOP, ROW, LANE, GAP = 960, 62, 14, 34, 30, 9, 8
COLOURS = {
    "forward": "#6fa8dc", "backward": "#f6b26b", "weight": "#93c47d", "forward2": "#3d78b4", "backward2": "#cc7f2e",
    "bubble": "#e4e4e4", "comm": "#c9665f", "optimizer": "#8e7cc3"}
LEGEND = {
    "forward": "forward", "forward2": "forward, chunk 1", "backward": "backward", "backward2": "backward, chunk 1",
    "weight": "weight gradient", "bubble": "bubble", "comm": "communication, and waiting for it", "optimizer": "optimizer"}


def kind_of(event: dict) -> str | None:
    category, second = event["cat"], event["args"]["chunk"] % 2 == 1
    if category in ("forward", "backward"):
        if event["name"].startswith("W"):
            return "weight"
        return category + ("2" if second else "")
    if category.endswith("_comm"):
        return "comm"
    return category if category in ("bubble", "optimizer") else None


def read(path: Path, step: int | None) -> tuple[dict[int, str], list[dict]]:
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    spans = [e for e in events if e["ph"] == "X" and e["dur"] > 0 and kind_of(e)]
    step = max(e["args"]["step"] for e in spans) if step is None else step
    return names, [e for e in spans if e["args"]["step"] == step]


def idle_share(spans: list[dict], ranks: int) -> float:
    """1 - work / (ranks x window), the window from the first work of any rank to the last of any."""
    work = [e for e in spans if e["cat"] in ("forward", "backward")]
    window = max(e["ts"] + e["dur"] for e in work) - min(e["ts"] for e in work)
    return 1 - sum(e["dur"] for e in work) / (ranks * window)


def draw(names: dict[int, str], spans: list[dict], title: str) -> str:
    ranks = sorted(names)
    if any(e["cat"] == "bubble" for e in spans):
        title += f": {100 * idle_share(spans, len(ranks)):.0f}% idle"
    lanes = {pid: sorted({e["tid"] for e in spans if e["pid"] == pid and e["tid"] % 1000 >= 100}) for pid in ranks}
    strip = LANE * max(1, *(len(l) for l in lanes.values()))
    pitch = ROW + strip + GAP
    begin = min(e["ts"] for e in spans)
    length = max(e["ts"] + e["dur"] for e in spans) - begin
    scale = (WIDTH - LEFT - RIGHT) / length
    height = TOP + len(ranks) * pitch + 44
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           'font-family="sans-serif" font-size="12">',
           "<style>text{fill:#222}.m{text-anchor:middle;font-size:11px}.t{font-weight:bold}.a{fill:#666;font-size:10px;"
           "text-anchor:middle}" + "".join(f".{k}{{fill:{c}}}" for k, c in COLOURS.items()) +
           "rect{stroke:#fff;stroke-width:.6}</style>",
           # A ground of its own: readable whatever the page behind it.
           f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#fcfcfc"/>',
           f'<text class="t" x="{LEFT}" y="20">{escape(title)}</text>']
    used = []
    for row, pid in enumerate(ranks):
        top = TOP + row * pitch
        out.append(f'<text x="10" y="{top + 19}">rank {pid - 1}</text>')
        for e in sorted((e for e in spans if e["pid"] == pid), key=lambda e: (e["cat"] != "bubble", e["ts"], -e["dur"])):
            kind, background = kind_of(e), e["tid"] % 1000 >= 100
            x, width = LEFT + (e["ts"] - begin) * scale, e["dur"] * scale
            if width < 0.4:
                continue
            used.append(kind)
            thickness = LANE if background else ROW
            y = top + ROW + lanes[pid].index(e["tid"]) * LANE if background else top
            label = str(e["args"]["microbatch"]) if e["cat"] in ("forward", "backward") and width > 7 else ""
            out.append(f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{thickness:.1f}"/>')
            if label:
                out.append(f'<text class="m" x="{x + width / 2:.1f}" y="{y + 19}">{label}</text>')
    axis = TOP + len(ranks) * pitch + 4
    milliseconds = length / 1000
    unit = next(u for u in (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if milliseconds / u <= 14)
    for tick in range(0, int(milliseconds * 0.98), unit):
        out.append(f'<text class="a" x="{LEFT + tick * 1000 * scale:.1f}" y="{axis + 6}">{tick} ms</text>')
    x = LEFT
    for kind in (k for k in LEGEND if k in used):
        text = LEGEND[kind]
        if kind + "2" in used:
            text += ", chunk 0"
        out.append(f'<rect class="{kind}" x="{x}" y="{axis + 18}" width="12" height="12"/>'
                   f'<text x="{x + 17}" y="{axis + 28}">{text}</text>')
        x += 36 + 6.4 * len(text)
    return "\n".join(out) + "\n</svg>\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("svg", type=Path)
    parser.add_argument("--title", default="one step")
    parser.add_argument("--step", type=int, help="default: the last in the file")
    options = parser.parse_args()
    options.svg.write_text(draw(*read(options.trace, options.step), options.title), encoding="utf-8")


if __name__ == "__main__":
    main()
