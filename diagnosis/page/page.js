// The page: head, findings, and a card for each chart.
function showHead() {
  const head = document.getElementById("head");
  const state = data.verdict ? "spoilt" : ["completed", "failed", "preempted"].find(known => known === data.state) ?? "";
  const figures = data.head;
  head.append(element("p", { class: "mark" }, "Espalier report"),
    element("h1", {}, data.name, element("span", { class: "state " + state }, data.state),
      data.verdict && element("span", { class: "state failed" }, data.verdict)),
    element("p", { class: "subtitle" },
      figures ? `${counted(figures.steps, "step")}, ${countText(figures.tokens)} tokens` : "no step was recorded"),
    data.cause && element("pre", { class: "cause" }, data.cause));
  const tiles = element("ul", { class: "tiles" });
  const tile = (name, value, detail) =>
    tiles.append(element("li", {}, element("span", {}, name), element("b", {}, value), element("small", {}, detail)));
  if (figures) {
    tile("Loss", numberText(figures.loss.last), `step ${figures.last_step}, from ${numberText(figures.loss.first)}`);
    const validation = figures.validation_loss, seconds = figures.step_seconds, memory = data.memory;
    if (validation)
      tile("Validation loss", numberText(validation.last), validation.is_lowest ? "the lowest so far"
        : `lowest ${numberText(validation.lowest)} at step ${validation.lowest_step}`);
    if (seconds.measured !== null)
      tile("Step time", secondsText(seconds.measured), seconds.predicted
        ? `predicted ${secondsText(seconds.predicted)} (${differenceText(seconds.measured, seconds.predicted)})` : "median");
    if (figures.tokens_per_second !== null) tile("Tokens per second", countText(figures.tokens_per_second), "all ranks, median");
    if (figures.gemm_fraction !== null)
      tile("GEMM fraction", percentText(figures.gemm_fraction), "of this machine's measured GEMM rate");
    if (figures.mfu !== null) tile("MFU", percentText(figures.mfu), "of the accelerators' peak");
    if (memory.peak_bytes)
      tile("Peak memory", bytesText(memory.peak_bytes), "highest rank" + (memory.predicted_bytes
        ? `, predicted ${bytesText(memory.predicted_bytes)} (${differenceText(memory.peak_bytes, memory.predicted_bytes)})` : ""));
    else if (memory.rank_0_total) tile("Peak memory", bytesText(memory.rank_0_total), "rank 0");
  }
  const facts = data.facts.map(fact => [fact.name, numberText(fact.value, 10)]);
  if (figures)
    facts.splice(4, 0, ["steps", `${figures.first_step} to ${figures.last_step}`
      + (figures.skipped_steps ? `, ${figures.skipped_steps} skipped` : "")]);
  head.append(tiles);
  showFindings();
  const about = card("about", "The run", { whole: true });
  about.append(element("dl", { class: "facts" },
    ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))));
}

function showFindings() {
  const place = card("findings", "What stands out", { whole: true });
  if (!data.findings.length) place.append(element("p", { class: "subtitle" }, "Nothing."));
  let heading = null, list = null;
  for (const finding of data.findings) {
    if (finding.heading !== heading) {
      heading = finding.heading;
      list = element("ol");
      place.append(element("h3", {}, heading), list);
    }
    const seconds = value => numberText(value) + " s";  // as in the texts of the findings
    const cost = finding.seconds > 0 ? `${seconds(finding.seconds)} of a step, ${percentText(finding.share, 0)}` : "";
    const changes = finding.changes.map(change => change.estimated_by
      ? `${change.setting}: gains ${seconds(change.gain_seconds)} a step (${change.estimated_by})` : change.setting);
    const lines = (name, texts) => texts.length ? element("ul", { class: name }, ...texts.map(text => element("li", {}, text))) : "";
    list.append(element("li", {}, element("b", {}, finding.title), cost && element("small", {}, cost),
      lines("evidence", finding.evidence), lines("changes", changes)));
  }
}

// ---- Charts ----

// series: [{name, shade, points, dots}]
function curves(id, title, subtitle, series, { units = PLAIN, whole = false, fromZero = true, choice = false } = {}) {
  const points = series[0].points;
  if (!points.length) return;
  const values = points.map(point => point[1]).filter(isNumber), high = most(values), low = least(values);
  const broken = points.filter(point => !isNumber(point[1])).map(point => point[0]);
  const isWide = low > 0 && high > 50 * low;
  let logarithmic = !choice && units === PLAIN && isWide;
  const [unit, factor] = unitOf(high, high > 1 ? units : PLAIN);
  const place = card(id, title, { subtitle: subtitle + (logarithmic ? ", logarithmic" : "") + (unit && ", " + unit), whole });
  if (series.length > 1) legend(place, series.map(each => [each.name, each.shade]));
  const button = element("button", { type: "button", "aria-pressed": "false" }, "logarithmic");
  const build = () => ({
    type: "line",
    data: {
      datasets: series.map(each => ({
        label: each.name, borderColor: colour(each.shade), backgroundColor: colour(each.shade), borderWidth: 1.6,
        pointRadius: each.dots || each.points.length < 3 ? 3 : 0, pointHoverRadius: 4, pointHitRadius: 8, order: each.dots ? 0 : 1,
        data: each.points.map(([x, y]) => ({ x, y: isNumber(y) && !(logarithmic && y <= 0) ? y / factor : NaN })),
      })),
    },
    options: {
      ...baseOptions(stepAxis(points.map(point => point[0])), {
        type: logarithmic ? "logarithmic" : "linear", beginAtZero: fromZero && !logarithmic,
        ticks: { callback: value => numberText(value), maxTicksLimit: 8 },
      }, { callbacks: {
        title: stepTitle, label: item => `${item.dataset.label}: ${numberText(item.parsed.y)}${unit && " " + unit}`,
      } }),
      interaction: { mode: "nearest", axis: "x", intersect: false },
      extra: { restarts: data.restarts.map(restart => restart.first_step), broken },
    },
  });
  const entry = plot(place, spoken(title, points), build, { group: "steps", buttons: choice && low > 0 && low < high ? [button] : [] });
  button.addEventListener("click", () => {
    logarithmic = !logarithmic;
    button.setAttribute("aria-pressed", logarithmic);
    button.textContent = logarithmic ? "linear" : "logarithmic";
    entry.redraw();
  });
  const missing = points.filter(point => !isNumber(point[1])).slice(0, 5).map(point => `step ${point[0]}: ${point[1]}`);
  note(place, broken.length ? `Not finite at ${counted(broken.length, "step")}, red marks: ${missing.join("; ")}`
    + (broken.length > missing.length ? "; ..." : ".") : "");
  return place;
}

function showCurves() {
  const series = data.series;
  const place = curves("loss", "Loss", "nats per token, before the update of the step",
    [{ name: "training", shade: "train", points: series.loss },
     ...(series.validation_loss.length ? [{ name: "validation", shade: "validation", points: series.validation_loss, dots: true }] : [])],
    { whole: true, fromZero: false, choice: true });
  const restarts = data.restarts.slice(-8)
    .map(restart => [`step ${restart.first_step}: a new launch`, ...restart.changes].join(", "));
  note(place, restarts.length ? `Dashed lines: ${restarts.join("; ")}.` : "");
  note(place, "Drag across a chart to zoom. Charts over steps zoom together; a double click shows all.");
  curves("learning-rate", "Learning rate", "of the update of the step", [{ name: "learning rate", shade: "rate", points: series.learning_rate }]);
  curves("gradient-norm", "Gradient norm", "global, before clipping", [{ name: "gradient norm", shade: "norm", points: series.gradient_norm }]);
  curves("throughput", "Throughput", "tokens per second, all ranks together",
    [{ name: "throughput", shade: "throughput", points: series.tokens_per_second }], { units: COUNTS });
  if (series.loss_scale)
    curves("loss-scale", "Loss scale", "of fp16", [{ name: "loss scale", shade: "other", points: series.loss_scale }]);
}

// Horizontal bars of parts. rows: [{label, values: {name: number}, predicted}]
function bars(id, title, subtitle, label, rows, names, units, { whole = false, text = "" } = {}) {
  const sums = rows.map(row => names.reduce((sum, name) => sum + row.values[name], 0));
  const [unit, factor] = unitOf(most(sums), units);
  const place = card(id, title, { subtitle: `${unit}, ${subtitle}`, whole });
  legend(place, names.map(name => [spaced(name), name]));
  plot(place, label, () => ({
    type: "bar",
    data: {
      labels: rows.map(row => row.label),
      datasets: names.map(name => ({
        label: spaced(name), data: rows.map(row => row.values[name] / factor), maxBarThickness: 26, categoryPercentage: .9,
        backgroundColor: rows.map(row => colour(name) + (row.predicted ? "8c" : "")),
      })),
    },
    options: {
      ...baseOptions({ stacked: true, beginAtZero: true, max: most(sums) > 0 ? undefined : 1, ticks: { callback: value => numberText(value) } },
        { stacked: true, grid: { display: false }, ticks: { autoSkip: rows.length > 40 } }, { callbacks: {
          label: item => `${item.dataset.label}: ${numberText(item.raw)} ${unit} (${percentText(item.raw * factor / sums[item.dataIndex])})`,
        } }),
      indexAxis: "y",
    },
  }), { height: 60 + 24 * Math.max(3, rows.length) });
  note(place, text);
}

function showMemory() {
  const memory = data.memory, stages = memory.predicted;
  const rows = [{ label: "rank 0", values: memory.rank_0 }, ...stages.map((values, stage) =>
    ({ label: stages.length === 1 ? "predicted" : `stage ${stage} predicted`, values, predicted: true }))];
  const used = Object.keys(memory.rank_0).filter(name => rows.some(row => row.values[name] > 0));
  const text = memory.peak_bytes && memory.predicted_bytes
    ? `Peak memory (highest rank): ${bytesText(memory.peak_bytes)}, predicted ${bytesText(memory.predicted_bytes)} `
      + `(${differenceText(memory.peak_bytes, memory.predicted_bytes)}), plus ${bytesText(memory.library_bytes)} in libraries.` : "";
  bars("memory", "Memory by category", stages.length ? "the peak of rank 0, and as predicted (pale)" : "the peak of rank 0",
    "Memory by category: the peak of rank 0" + (stages.length ? ", and predicted by stage" : ""), rows, used, BYTES, { text });
}

function showPhases() {
  const { steps, seconds, saves } = data.phases, names = Object.keys(seconds);
  const longest = most(steps.map((_, i) => names.reduce((sum, name) => sum + seconds[name][i], 0)));
  const typical = data.head.step_seconds.measured;
  const top = isNumber(typical) && typical > 0 && longest > 3 * typical ? 3 * typical : undefined;  // else one would make all small
  const [unit, factor] = unitOf(top ?? longest, SECONDS);
  const place = card("phases", "Time by phase", { subtitle: `${unit} a step, rank 0` });
  legend(place, names.map(name => [spaced(name), name]));
  plot(place, `Time of a step by phase, rank 0, from step ${data.head.first_step} to ${data.head.last_step}`, () => ({
    type: "line",
    data: {
      datasets: names.map((name, i) => ({
        label: spaced(name), data: seconds[name].map((y, j) => ({ x: steps[j], y: y / factor })), fill: i ? "-1" : "origin",
        backgroundColor: colour(name), borderColor: colour(name), borderWidth: 0, pointRadius: steps.length > 1 ? 0 : 3, pointHitRadius: 0,
      })),
    },
    options: {
      ...baseOptions(stepAxis(steps), {
        stacked: true, beginAtZero: true, max: top && top / factor, ticks: { callback: value => numberText(value) },
      }, { callbacks: {
        title: stepTitle, label: item => `${item.dataset.label}: ${numberText(item.raw.y)} ${unit}`,
      } }),
      interaction: { mode: "index", intersect: false },
    },
  }), { group: "steps" });
  note(place, [top ? `The longest reaches ${secondsText(longest)}, beyond the top.` : "",
    saves.count ? `Between steps: ${counted(saves.count, "save")}, ${secondsText(saves.seconds)} together.` : ""].join(" ").trim());
}

function showRanks() {
  const { num_ranks: numRanks, rows } = data.ranks, stages = data.predicted?.stages ?? [];
  const shown = [];
  for (const stage of [...new Set(rows.map(row => row.stage))].sort((a, b) => a - b)) {
    if (stages[stage])
      shown.push({ label: stages.length === 1 ? "predicted" : `stage ${stage} predicted`, values: stages[stage], predicted: true });
    shown.push(...rows.filter(row => row.stage === stage).map(row => ({ label: `rank ${row.rank}`, values: row.seconds })));
  }
  const total = row => Object.values(row.values).reduce((sum, value) => sum + value, 0);
  const names = Object.keys(rows[0]?.seconds ?? {}).filter(name => shown.some(row => row.values[name] > 2e-3 * total(row)));
  bars("ranks", "Time of a typical step", "mean without the first tenth of the steps" + (stages.length ? ", and as predicted (pale)" : ""),
    `Mean time of a step by phase, of ${counted(numRanks, "rank")}${stages.length ? ", and predicted" : ""}`, shown, names, SECONDS, {
      whole: shown.length > 12,
      text: rows.length < numRanks ? `${rows.length} of ${numRanks} ranks: those with most work of their own.` : "",
    });
}

function showTimeline() {
  const { step, rows, kinds, num_ranks: numRanks, has_stages: hasStages, idle_share: idle } = data.timeline;
  const blocks = rows.flatMap((row, i) => row.blocks.map(block => ({ ...block, row: i })));
  const idleText = hasStages ? `, ${percentText(idle, 0)} idle` : "", pitch = rows.length <= 8 ? 40 : rows.length <= 24 ? 26 : 17;
  const end = most(blocks.map(block => block.end)), [unit, factor] = unitOf(end, SECONDS);
  const place = card("timeline", hasStages ? "The pipeline in one step" : "One step", {
    whole: true, subtitle: `step ${step}${idleText}; numbers are micro-batches, the strip below is communication in the background`,
  });
  legend(place, kinds.map(kind => [spaced(kind.text), kind.colour]));
  const dataset = ({ kind, text, colour: shade, computes }, background) => ({
    text: spaced(text), shade, numbered: !background && computes, backgroundColor: colour(shade), grouped: false, borderWidth: 0,
    barThickness: pitch * (background ? .17 : .62), minBarLength: .5, borderColor: colour("paper"),
    data: blocks.filter(block => block.kind === kind && Boolean(block.background) === background)
      .map(block => ({ x: [block.begin / factor, block.end / factor], y: block.row + (background ? .44 : 0), block })),
  });
  // Chart.js draws the last dataset first.
  const build = () => ({
    type: "bar",
    data: { datasets: [false, true].flatMap(background => kinds.map(kind => dataset(kind, background))).filter(each => each.data.length).reverse() },
    options: {
      ...baseOptions({ type: "linear", min: 0, max: end / factor, title: { display: true, text: unit, color: colour("muted"), align: "end", padding: 0 },
                       ticks: { callback: value => numberText(value) } }, {
        type: "linear", reverse: true, min: -.5, max: rows.length - .4, grid: { display: false }, offset: false,
        afterBuildTicks: scale => { scale.ticks = rows.map((_, value) => ({ value })); },
        ticks: { autoSkip: false, callback: value => rows[value] ? `rank ${rows[value].rank}` : "" },
      }, { callbacks: {
        title: items => items.length ? `rank ${rows[items[0].raw.block.row].rank}` : "",
        label: item => {
          const block = item.raw.block, seconds = secondsText(block.end - block.begin);
          return block.events ? `${block.events} times ${item.dataset.text}: ${seconds}` : `${block.name}: ${seconds}`;
        },
      } }),
      indexAxis: "y", interaction: { mode: "nearest", intersect: true }, extra: { numbers: true },
    },
  });
  plot(place, `What each of ${rows.length} ranks did in step ${step}${idleText}`, build, { height: 50 + pitch * rows.length });
  note(place, rows.length < numRanks ? `${rows.length} of ${numRanks} ranks${numRanks > 64 ? ": one of each stage" : ""}.` : "");
}

// ---- The page ----

function showGaps() {
  if (!data.gaps.length) return;
  card("gaps", "What this page could not show", { whole: true })
    .append(element("ul", {}, ...data.gaps.map(gap => element("li", {}, gap))));
}

function showAll() {
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 12;
  showHead();
  if (data.series) showCurves();
  if (data.memory) showMemory();
  if (data.phases) showPhases();
  if (data.ranks) showRanks();
  if (data.timeline) showTimeline();
  showGaps();
  document.getElementById("foot").textContent = `Written ${data.written} from ${data.run}`;
  const redraw = () => charts.forEach(entry => entry.redraw());
  dark.addEventListener("change", redraw);
  narrow.addEventListener("change", redraw);
}
showAll();
