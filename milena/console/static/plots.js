// Plots below one another with a common axis, drawn by uPlot.

import { element } from "./dom.js";

/** @typedef {{ name: string, shape: string, colour: string, xs: number[], ys: (number | null)[] }} Series */
/** @typedef {{ title: string, unit: string, logarithmic: boolean, series: Series[] }} Plot */
/** @typedef {{ title: string, axis: string, time: boolean, bands: [string, number, number, string][], plots: Plot[] }} Plots */

const HEIGHT = 200;
const ADDED = new Set(["stack", "bars"]);

/**
 * Draw plots into an element.
 * @param {HTMLElement} place
 * @param {Plots} plots
 */
export function drawPlots(place, plots) {
  const names = element("p", { class: "dim bands", "aria-live": "off" });
  const frames = plots.plots.map((plot) => element("figure", { role: "img", "aria-label": spoken(plot) }));
  place.replaceChildren(...frames, plots.bands.length > 0 ? names : "");
  const drawn = plots.plots.map((plot, at) => drawPlot(frames[at] ?? place, plot, plots, names));
  const resize = () => drawn.forEach((one) => one.setSize({ width: widthOf(place), height: HEIGHT }));
  new ResizeObserver(resize).observe(place);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawPlots(place, plots), { once: true });
}

/** @param {HTMLElement} place */
function widthOf(place) {
  return Math.max(place.clientWidth, 300);
}

/**
 * @param {HTMLElement} frame
 * @param {Plot} plot
 * @param {Plots} plots
 * @param {HTMLElement} names
 */
function drawPlot(frame, plot, plots, names) {
  const { data, raw } = aligned(plot);
  const style = getComputedStyle(document.documentElement);
  const [text, grid, band] = ["--dim", "--line", "--changed"].map((name) => style.getPropertyValue(name).trim());
  const axis = { stroke: text, grid: { stroke: grid, width: 0.5 }, ticks: { stroke: grid, width: 0.5 } };
  const stacked = plot.series.length > 1 && plot.series.every((one) => one.shape === "stack");
  const options = {
    title: `${plot.title} (${plot.unit})`,
    width: widthOf(frame),
    height: HEIGHT,
    cursor: { sync: { key: plots.title }, y: false },
    scales: { x: { time: plots.time, range: barRange(plot, data[0] ?? []) }, y: plot.logarithmic ? { distr: 3 } : { range: fromZero } },
    tzDate: (/** @type {number} */ seconds) => new Date(seconds * 1000 + new Date(seconds * 1000).getTimezoneOffset() * 60000),
    axes: [{ ...axis, label: plots.axis, ...(plots.time ? { values: times, space: 90 } : {}) }, { ...axis, size: 64 }],
    series: [{ label: plots.axis, ...(plots.time ? { value: timeText } : {}) }, ...plot.series.map((one, at) => seriesOf(one, at, raw))],
    bands: stacked ? plot.series.slice(1).map((_, at) => ({ series: [at + 1, at + 2] })) : [],
    hooks: {
      drawClear: [(/** @type {any} */ one) => drawBands(one, plots.bands, band ?? "")],
      setCursor: [(/** @type {any} */ one) => nameBands(one, plots.bands, names)],
    },
  };
  return new window.uPlot(options, data, frame);
}

/**
 * @param {any} _plot
 * @param {number} _least
 * @param {number} most
 */
function fromZero(_plot, _least, most) {
  return [0, most > 0 ? most * 1.05 : 1];
}

/**
 * Return the texts of times (UTC) on an axis: the time of day, and the date where it is another one.
 * @param {any} _plot
 * @param {number[]} splits
 */
function times(_plot, splits) {
  let date = "";
  return splits.map((seconds) => {
    const [day, time] = timeText(null, seconds).split(" ");
    const text = day === date ? time : time === "00:00:00" ? day : `${day} ${time}`;
    date = day ?? "";
    return text;
  });
}

/**
 * @param {any} _plot
 * @param {number | null} seconds
 */
function timeText(_plot, seconds) {
  return seconds === null ? "–" : new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ");
}

/**
 * Return the range of an axis on which whole bars fit; undefined if there are none.
 * @param {Plot} plot
 * @param {(number | null)[]} xs in order
 */
function barRange(plot, xs) {
  if (!plot.series.some((series) => series.shape === "bars")) return undefined;
  const gaps = xs.slice(1).map((x, at) => (x ?? 0) - (xs[at] ?? 0));
  const half = Math.min(...gaps, 86_400) / 2;
  return () => [(xs[0] ?? 0) - half, (xs.at(-1) ?? 0) + half];
}

/**
 * Return the series on one axis, bars and those of a stack added up from the last to the first, and the values as they were.
 * @param {Plot} plot
 */
function aligned(plot) {
  const xs = [...new Set(plot.series.flatMap((series) => series.xs))].sort((one, other) => one - other);
  const raw = plot.series.map((series) => {
    const values = new Map(series.xs.map((x, at) => [x, series.ys[at] ?? null]));
    const drawable = (/** @type {number | null | undefined} */ y) => (plot.logarithmic && typeof y === "number" && y <= 0 ? null : y);
    return xs.map((x) => /** @type {number | null} */ (values.has(x) ? drawable(values.get(x)) : undefined));
  });
  /** @type {number[]} */
  const sums = xs.map(() => 0);
  const drawn = [...raw].reverse().map((values, at) => {
    if (!ADDED.has(plot.series[raw.length - 1 - at]?.shape ?? "")) return values;
    return values.map((value, index) => (sums[index] = (sums[index] ?? 0) + (value ?? 0)));
  });
  return { data: [xs, ...drawn.reverse()], raw };
}

/**
 * @param {Series} series
 * @param {number} at
 * @param {(number | null)[][]} raw
 */
function seriesOf(series, at, raw) {
  const filled = series.shape !== "line";
  return {
    label: series.name,
    stroke: series.colour,
    width: 1.3,
    dash: series.shape === "line" && at > 0 ? [6, 2 * at] : [],
    fill: filled ? `${series.colour}${series.shape === "bars" ? "" : "66"}` : undefined,
    paths: series.shape === "bars" ? /** @type {any} */ (window.uPlot).paths.bars({ size: [0.8, 60] }) : undefined,
    points: series.shape === "line" ? { show: true, size: 5, filter: () => alone(raw[at] ?? []) } : { show: false },
    value: (/** @type {unknown} */ _plot, /** @type {unknown} */ _value, /** @type {unknown} */ _series, /** @type {number | null} */ index) =>
      index === null ? "–" : shown(raw[at]?.[index]),
  };
}

/**
 * The indexes of values between two gaps, which no line shows.
 * @param {(number | null | undefined)[]} values
 */
function alone(values) {
  const known = values.map((value, index) => ({ value, index })).filter(({ value }) => value !== undefined);
  return known
    .filter(({ value }, at) => value !== null && (known[at - 1]?.value ?? null) === null && (known[at + 1]?.value ?? null) === null)
    .map(({ index }) => index);
}

/** @param {number | null | undefined} value */
function shown(value) {
  return value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 });
}

/**
 * @param {any} plot
 * @param {[string, number, number, string][]} bands
 * @param {string} colour
 */
function drawBands(plot, bands, colour) {
  const { left, top, width, height } = plot.bbox;
  plot.ctx.save();
  plot.ctx.fillStyle = colour;
  plot.ctx.globalAlpha = 0.5;
  for (const [, begun, ended] of bands) {
    const from = Math.max(plot.valToPos(begun, "x", true), left);
    const to = Math.min(plot.valToPos(ended, "x", true), left + width);
    if (to > from) plot.ctx.fillRect(from, top, to - from, height);
  }
  plot.ctx.restore();
}

/**
 * @param {any} plot
 * @param {[string, number, number, string][]} bands
 * @param {HTMLElement} names
 */
function nameBands(plot, bands, names) {
  if (plot.cursor.left < 0) return;
  const at = plot.posToVal(plot.cursor.left, "x");
  const found = bands.filter(([, begun, ended]) => begun <= at && at <= ended).map(([name, , , text]) => (text ? `${name} (${text})` : name));
  names.textContent = `At ${at.toFixed(1)}: ${found.join("; ") || "no fault"}`;
}

/** @param {Plot} plot */
function spoken(plot) {
  const texts = plot.series.map((series) => `${series.name} at most ${shown(Math.max(0, ...series.ys.map((y) => y ?? 0)))}`);
  return `${plot.title} in ${plot.unit}: ${texts.join(", ")}`;
}
