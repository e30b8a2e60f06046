// What all charts share: colours, zoom, marks, and how Chart.js is set up.
const charts = [];  // {chart, build, zoomed together}
const isNumber = value => typeof value === "number";

// Drag across a chart to see that part of it. Charts of one group show the same part.
function makeZoomable(entry, canvas) {
  let from = null;
  const inside = event => {
    const area = entry.chart.chartArea, x = event.clientX - canvas.getBoundingClientRect().left;
    return Math.min(area.right, Math.max(area.left, x));
  };
  canvas.addEventListener("pointerdown", event => { from = event.button === 0 ? inside(event) : null; });
  canvas.addEventListener("pointermove", event => {
    if (from === null) return;
    entry.chart.selection = [from, inside(event)];
    entry.chart.draw();
  });
  addEventListener("pointerup", event => {
    if (from === null) return;
    const ends = [from, inside(event)].sort((a, b) => a - b), scale = entry.chart.scales.x;
    from = entry.chart.selection = null;
    if (ends[1] - ends[0] > 8) zoom(entry.group, scale.getValueForPixel(ends[0]), scale.getValueForPixel(ends[1]));
    else entry.chart.draw();
  });
  canvas.addEventListener("pointercancel", () => { from = entry.chart.selection = null; });
  canvas.addEventListener("dblclick", () => zoom(entry.group));
}

function zoom(group, low, high) {
  for (const entry of charts.filter(each => each.group === group)) {
    entry.range = low === undefined ? null : [low, high];
    entry.reset.hidden = !entry.range;
    applyRange(entry);
    entry.chart.update("none");
  }
}

function applyRange(entry) {
  const scale = entry.chart.options.scales.x;
  scale.min = entry.range ? entry.range[0] : entry.whole.min;
  scale.max = entry.range ? entry.range[1] : entry.whole.max;
}

// Lines over the whole height, marks of what no axis holds, numbers on blocks, and the part that a drag chooses.
const overlay = {
  id: "overlay",
  afterDatasetsDraw(chart) {
    const { ctx, chartArea: area, scales } = chart, extra = chart.config.options.extra ?? {};
    ctx.save();
    const line = (x, bottom, shade, dash) => {
      if (x < area.left || x > area.right) return;
      ctx.beginPath();
      ctx.setLineDash(dash);
      ctx.strokeStyle = colour(shade);
      ctx.lineWidth = dash.length ? 1.5 : 2;
      ctx.moveTo(x, area.top);
      ctx.lineTo(x, bottom);
      ctx.stroke();
    };
    for (const step of extra.restarts ?? []) line(scales.x.getPixelForValue(step), area.bottom, "warn", [2, 3]);
    for (const step of extra.broken ?? []) line(scales.x.getPixelForValue(step), area.top + 8, "bad", []);
    if (extra.numbers) drawNumbers(chart, ctx);
    if (chart.selection) {
      ctx.fillStyle = colour("calm") + "33";
      ctx.fillRect(chart.selection[0], area.top, chart.selection[1] - chart.selection[0], area.bottom - area.top);
    }
    ctx.restore();
  },
};

// The micro-batch of a block, where it fits.
function drawNumbers(chart, ctx) {
  ctx.beginPath();
  ctx.rect(chart.chartArea.left, chart.chartArea.top, chart.chartArea.width, chart.chartArea.height);
  ctx.clip();
  ctx.font = `11px ${Chart.defaults.font.family}`;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  chart.data.datasets.forEach((dataset, i) => {
    if (!dataset.numbered) return;
    ctx.fillStyle = colour(dataset.shade.startsWith("deep") ? "on-deep" : dataset.shade === "blue" ? "on-blue" : "on-light");
    chart.getDatasetMeta(i).data.forEach((bar, j) => {
      const text = String(dataset.data[j].block.microbatch ?? "");
      if (text && bar.height >= 14 && Math.abs(bar.x - bar.base) > ctx.measureText(text).width + 4)
        ctx.fillText(text, (bar.x + bar.base) / 2, bar.y);
    });
  });
}

const axis = extra => ({
  grid: { color: colour("grid"), borderColor: colour("rule") }, border: { color: colour("rule") },
  ...extra, ticks: { color: colour("muted"), maxRotation: 0, includeBounds: false, autoSkipPadding: 12, ...extra.ticks },
});

function baseOptions(x, y, tooltip) {
  return {
    animation: false, responsive: true, maintainAspectRatio: false, normalized: true,
    scales: { x: axis(x), y: axis(y) },
    plugins: {
      legend: { display: false },
      tooltip: {
        backgroundColor: colour("paper"), titleColor: colour("ink"), bodyColor: colour("ink"), borderColor: colour("rule"),
        borderWidth: 1, boxPadding: 4, ...tooltip,
      },
    },
  };
}

// Adds a plot to a card. `build` gives its configuration, anew when the colours change.
function plot(place, label, build, { group, height, buttons = [] } = {}) {
  const canvas = element("canvas", { role: "img", "aria-label": label });
  const box = element("div", { class: "plot" }, canvas), reset = element("button", { type: "button" }, "reset zoom");
  const row = element("div", { class: "buttons" }, ...buttons, reset);
  if (height) box.style.height = height + "px";
  reset.hidden = true;
  place.append(row, box);
  const entry = { build, group: group ?? label, reset, range: null };
  entry.redraw = () => {
    entry.chart?.destroy();
    const configuration = build();
    entry.whole = { min: configuration.options.scales.x.min, max: configuration.options.scales.x.max };
    configuration.plugins = [overlay];
    entry.chart = new Chart(canvas, configuration);
    if (entry.range) { applyRange(entry); entry.chart.update("none"); }
  };
  charts.push(entry);
  entry.redraw();
  reset.addEventListener("click", () => zoom(entry.group));
  makeZoomable(entry, canvas);
  return entry;
}

const stepAxis = steps => ({
  type: "linear", min: steps[0], max: steps.at(-1) > steps[0] ? steps.at(-1) : steps[0] + 1,
  title: { display: true, text: "step", color: colour("muted"), align: "end", padding: 0 }, ticks: { precision: 0 },
});
const stepTitle = items => items.length ? `step ${Math.round(items[0].parsed.x)}` : "";

// "Gradient norm from step 1 to 1400: first 2, last 1, between 0.5 and 6"
function spoken(title, points) {
  const values = points.map(point => point[1]).filter(isNumber);
  if (!values.length) return `${title}: no finite value`;
  return `${title} from step ${points[0][0]} to ${points.at(-1)[0]}: first ${numberText(points[0][1])}, last `
    + `${numberText(points.at(-1)[1])}, between ${numberText(least(values))} and ${numberText(most(values))}`;
}
const least = values => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = values => values.reduce((a, b) => Math.max(a, b), -Infinity);
