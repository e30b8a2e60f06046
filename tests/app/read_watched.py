# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
"""The events and the table of a run directory, compared with its metrics.jsonl and samples.jsonl. read_watched.py RUN"""
import csv
import json
import math
import sys
from pathlib import Path

from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.util import tensor_util


def flat(line, separator):
    for key, value in line.items():
        if isinstance(value, dict):
            yield from ((key + separator + inner, number) for inner, number in flat(value, separator))
        else:
            yield key, value


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


run = Path(sys.argv[1])
metrics, samples = lines_of(run / "metrics.jsonl"), lines_of(run / "samples.jsonl")
accumulator = EventAccumulator(str(run / "tensorboard"), size_guidance={"tensors": 0})  # as the server has it
accumulator.Reload()


def tags(plugin):
    return sorted(accumulator.PluginTagToContent(plugin)) if plugin in accumulator.ActivePlugins() else []

# Each number of each step once, as in the lines; nothing of steps that were taken again.
wanted = {}
for line in metrics:
    for field, value in flat(line, "/"):
        if isinstance(value, (int, float)) and field != "step":
            tag = field if "/" in field else "training/" + field
            wanted.setdefault(tag, []).append((line["step"], value))
assert len(wanted) > 20 and "training/validation_loss" in wanted, wanted.keys()
assert tags("scalars") == sorted(wanted), tags("scalars")
for tag, series in wanted.items():
    seen = [(event.step, tensor_util.make_ndarray(event.tensor_proto).item()) for event in accumulator.Tensors(tag)]
    assert [step for step, _ in seen] == [step for step, _ in series], (tag, seen, series)
    for (_, got), (_, value) in zip(seen, series):
        assert math.isclose(got, value, rel_tol=1e-6, abs_tol=1e-30), (tag, got, value)

# The texts: shown line by line as they are.
prompts = list(dict.fromkeys(sample["prompt"] for sample in samples))
assert tags("text") == [f"samples/{i + 1}" for i in range(len(prompts))], tags("text")
for i, prompt in enumerate(prompts):
    seen = [(event.step, event.tensor_proto.string_val[0].decode()) for event in accumulator.Tensors(f"samples/{i + 1}")]
    texts = [(s["step"], prompt + s["text"]) for s in samples if s["prompt"] == prompt]
    assert seen == [(step, "    " + text.replace("\n", "\n    ")) for step, text in texts], (seen, texts)

# Every record of every file can be read, in the order of the launches.
times = []
for path in sorted((run / "tensorboard").iterdir()):
    events = list(EventFileLoader(str(path)).Load())
    assert events[0].file_version == "brain.Event:2" and len(events) > 2, path
    times += [event.wall_time for event in events]
assert times == sorted(times)

with open(run / "metrics.csv", newline="") as file:
    rows = list(csv.DictReader(file))
assert len(rows) == len(metrics)
for row, line in zip(rows, metrics):
    fields = dict(flat(line, "."))
    assert not set(fields) - set(row), set(fields) - set(row)
    for field, value in row.items():
        assert value == "" if field not in fields else str(fields[field]) == value or float(value) == fields[field], field
print(f"{run}: {len(metrics)} steps, {len(wanted)} series, {len(samples)} samples")
