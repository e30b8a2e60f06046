#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the runs that tests/app/test_numerics.sh leaves in a folder as docs/pictures/losses.svg: means of 20 steps.

    tests/app/test_numerics.sh build/espalier . runs/numerics && bench/draw_losses.py runs/numerics
"""
import argparse
import json
from pathlib import Path

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 380, 56, 170, 16, 40
WINDOW = 20
RUNS = {  # folder: colour, width, text
    "fp32_2": ("#c0c0c0", 5, "fp32, seed 2"), "fp32_3": ("#a0a0a0", 5, "fp32, seed 3"), "fp32": ("#707070", 5, "fp32"),
    "bf16": ("#e07b28", 1.6, "bf16"), "bf16_wide": ("#3b9c53", 1.6, "bf16, residual fp32"), "fp16": ("#2f6fb5", 1.6, "fp16")}


def means(folder: Path) -> list[float]:
    losses = [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [sum(losses[i:i + WINDOW]) / WINDOW for i in range(0, len(losses), WINDOW)]


def draw(curves: dict[str, list[float]]) -> str:
    values = [value for curve in curves.values() for value in curve]
    low, high = min(values) - 0.03, max(curve[1] for curve in curves.values()) + 0.03  # the first fall is cut off
    count = max(len(curve) for curve in curves.values())
    across = (WIDTH - LEFT - RIGHT) / (count - 1)
    down = (HEIGHT - TOP - BOTTOM) / (high - low)
    floor = HEIGHT - BOTTOM
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<clipPath id="plot"><rect x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{floor - TOP}"/></clipPath>',
           f'<path d="M{LEFT},{TOP} L{LEFT},{floor} L{WIDTH - RIGHT},{floor}" fill="none" stroke="black"/>']
    for tick in range(int(low * 10) + 1, int(high * 10) + 1):
        y = TOP + (high - tick / 10) * down
        svg.append(f'<path d="M{LEFT},{y:.1f} H{WIDTH - RIGHT}" stroke="#eeeeee"/>'
                   f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick / 10:.1f}</text>')
    for step in range(100, count * WINDOW + 1, 100):
        x = LEFT + (step / WINDOW - 1) * across
        svg.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{step}</text>')
    svg.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">step</text>'
               f'<text x="{LEFT + 60}" y="{TOP + 10}">loss</text>')
    for row, (name, curve) in enumerate(curves.items()):
        colour, width, text = RUNS[name]
        points = " ".join(f"{LEFT + i * across:.1f},{TOP + (high - value) * down:.1f}" for i, value in enumerate(curve))
        svg.append(f'<polyline clip-path="url(#plot)" points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        y = TOP + 20 + 20 * row
        svg.append(f'<path d="M{WIDTH - RIGHT + 12},{y} h24" stroke="{colour}" stroke-width="{width}"/>'
                   f'<text x="{WIDTH - RIGHT + 42}" y="{y + 4}">{text}</text>')
    return "\n".join(svg + ["</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder given to tests/app/test_numerics.sh")
    parser.add_argument("picture", type=Path, nargs="?", default=Path("docs/pictures/losses.svg"))
    args = parser.parse_args()
    curves = {name: means(args.runs / name) for name in RUNS if (args.runs / name).is_dir()}
    args.picture.write_text(draw(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
