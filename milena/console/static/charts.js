// Small charts of the last minutes: records appended per second, lag of followers, lag of groups.

import { element } from "./dom.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {{title: string, unit: string, colour: string}} Kind */

const KEPT = 300;
const STEP_MS = 950;
const HEIGHT = 92;

/** @type {Kind[]} */
const CHARTS = [
  { title: "Appended", unit: "records/s", colour: "--series-0" },
  { title: "Followers behind", unit: "records", colour: "--series-1" },
  { title: "Groups behind", unit: "records", colour: "--series-2" },
];

/**
 * The records that all groups have not committed yet.
 * @param {import("./types.js").State} state
 */
export function groupsLag(state) {
  return Object.values(state.groups).reduce((sum, group) => sum + groupLag(state, group), 0);
}

/**
 * @param {import("./types.js").State} state
 * @param {import("./types.js").Group} group
 */
export function groupLag(state, group) {
  let lag = 0;
  for (const [topic, offsets] of Object.entries(group.offsets)) {
    for (const [number, offset] of Object.entries(offsets)) lag += partitionLag(state, topic, Number(number), offset) ?? 0;
  }
  return lag;
}

/**
 * High watermark minus committed offset; null if the partition has no leader that answers.
 * @param {import("./types.js").State} state
 * @param {string} topic
 * @param {number} number
 * @param {number} offset
 */
export function partitionLag(state, topic, number, offset) {
  const part = state.topics[topic]?.partitions[number];
  const leader = part?.[8][part[0]];
  return leader && leader[3] >= 0 ? Math.max(0, leader[3] - offset) : null;
}

/** @param {number} value */
export function short(value) {
  const units = ["", "k", "M", "G"];
  let [number, at] = [value, 0];
  while (Math.abs(number) >= 1000 && at < units.length - 1) [number, at] = [number / 1000, at + 1];
  return `${number >= 100 || Number.isInteger(number) ? Math.round(number) : number.toFixed(1)}${units[at]}`;
}

export class Charts {
  /** @param {Store} store */
  constructor(store) {
    this._store = store;
    /** Seconds, then one list of values for each chart. @type {number[][]} */
    this._data = [[], ...CHARTS.map(() => [])];
    this._before = { at: 0, end: 0 };
    this._places = CHARTS.map(({ title, unit }) => {
      const [value, plot] = [element("b", {}, "–"), element("div", { class: "plot", "aria-hidden": "true" })];
      return { value, plot, figure: element("figure", { class: "panel" }, element("figcaption", {}, `${title}: `, value, ` ${unit}`), plot) };
    });
    this.element = element("div", { class: "charts" }, this._places.map((place) => place.figure));
    /** @type {uPlot[]} */
    this._plots = [];
    this._resized = new ResizeObserver(() => this._size());
    this._resized.observe(this.element);
    this._dark = matchMedia("(prefers-color-scheme: dark)");
    this._theme = () => this._make();
    this._dark.addEventListener("change", this._theme);
    this._ends = store.listen((changes) => this._changed(changes));
  }

  close() {
    this._ends();
    this._resized.disconnect();
    this._dark.removeEventListener("change", this._theme);
    for (const plot of this._plots) plot.destroy();
  }

  _make() {
    for (const plot of this._plots) plot.destroy();
    const style = getComputedStyle(document.documentElement);
    const [line, dim] = [style.getPropertyValue("--line"), style.getPropertyValue("--dim")];
    const axis = { stroke: dim, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    this._plots = CHARTS.map(({ colour }, at) => {
      const place = /** @type {{plot: HTMLElement}} */ (this._places[at]).plot;
      const options = {
        width: Math.max(120, place.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        padding: [6, 8, 0, 0],
        axes: [{ ...axis, size: 20, space: 70 }, { ...axis, size: 42, space: 26, values: (/** @type {unknown} */ _, /** @type {number[]} */ all) => all.map(short) }],
        scales: { y: { range: (/** @type {unknown} */ _, /** @type {number} */ low, /** @type {number} */ high) => [0, Math.max(1, high * 1.1 || 1)] } },
        series: [{}, { stroke: style.getPropertyValue(colour), width: 1.5, fill: style.getPropertyValue("--panel"), points: { show: false } }],
      };
      return new window.uPlot(options, [this._data[0] ?? [], this._data[at + 1] ?? []], place);
    });
  }

  _size() {
    if (!this._plots.length) this._make();
    this._plots.forEach((plot, at) => {
      const width = /** @type {{plot: HTMLElement}} */ (this._places[at]).plot.clientWidth;
      if (width > 0) plot.setSize({ width, height: HEIGHT });
    });
  }

  /** @param {import("./store.js").Changes} changes */
  _changed(changes) {
    const { state, totals } = this._store;
    if (!state || state.time_ms - this._before.at < STEP_MS) return;
    const seconds = (state.time_ms - this._before.at) / 1000;
    const known = this._before.at > 0 && !changes.full && !changes.topics;
    const rate = known ? Math.max(0, totals.end - this._before.end) / seconds : 0;
    this._before = { at: state.time_ms, end: totals.end };
    [state.time_ms / 1000, rate, totals.lag, groupsLag(state)].forEach((value, at) => {
      const list = /** @type {number[]} */ (this._data[at]);
      list.push(value);
      if (list.length > KEPT) list.shift();
    });
    this._plots.forEach((plot, at) => {
      const values = /** @type {number[]} */ (this._data[at + 1]);
      plot.setData([this._data[0] ?? [], values]);
      const place = /** @type {{value: HTMLElement}} */ (this._places[at]);
      place.value.textContent = short(Math.round(values.at(-1) ?? 0));
    });
  }
}
