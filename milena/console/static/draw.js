// Drawings that the pages of runs and the console share: logs by offset, and requests between nodes.

import { element, shape } from "./dom.js";
import { LongList } from "./list.js";

/**
 * A log, or a segment of one, as a bar by offset.
 * @typedef {object} Log
 * @property {string} name
 * @property {string} [about] state in a few words, such as `leader, in ISR`
 * @property {"local" | "remote"} kind
 * @property {number} start the first offset
 * @property {number} end the offset after the last one
 * @property {[number, number][]} epochs leader epochs in ascending order, each with its first offset
 * @property {Map<number, string>} [records] labels by offset; without it, only epochs are drawn
 * @property {Mark[]} [marks]
 * @property {number} [localStart] records before this offset are only in the tier
 * @property {boolean} [stopped]
 * @property {boolean} [changed] whether the whole row is new, or its state has changed
 * @property {Set<number>} [added] offsets that the previous state did not have
 * @property {Map<number, string>} [removed] offsets that only the previous state had
 */

/** @typedef {{ name: string, offset: number, moved?: boolean }} Mark an offset of a log with a name */
/** @typedef {{ first: number, end: number, epoch: number }} Run offsets of one leader epoch */

const COLOURS = 8;
const NAMES = 250;
const NAME = 26;
const AXIS = 20;
const TICK = 64;
const EPOCHS = 15;
const BAR = 24;
const LINE = 13;
const MOST_CELLS = 48;
const MARGIN = 260;

/**
 * Return the class that colours a leader epoch. The colour never is the only sign: epochs are labelled, too.
 * @param {number} epoch
 */
export function epochClass(epoch) {
  return `epoch-${((epoch % COLOURS) + COLOURS) % COLOURS}`;
}

/**
 * Return the runs of a log: each leader epoch with the offsets that it covers.
 * @param {Log} log
 * @returns {Run[]}
 */
export function runsOf(log) {
  /** @type {Run[]} */
  const runs = [];
  log.epochs.forEach(([epoch, start], at) => {
    const next = log.epochs[at + 1];
    const first = Math.max(start, log.start);
    const end = Math.min(next === undefined ? log.end : next[1], log.end);
    if (first < end) runs.push({ first, end, epoch });
  });
  return runs;
}

/**
 * Return a drawing of logs on one axis of offsets: local logs above, segments in the tier below.
 * @param {Log[]} logs
 * @param {{ label: string, width?: number }} options `width`: pixels
 * @returns {SVGElement}
 */
export function drawLogs(logs, { label, width = 1060 }) {
  const scale = scaleOf(logs, width - NAMES - MARGIN);
  const parts = [axis(scale)];
  let y = AXIS + 6;
  let tier = false;
  for (const log of logs) {
    if (log.kind === "remote" && !tier) {
      parts.push(shape("text", { x: 0, y: y + 13, class: "dim" }, "remote tier"));
      parts.push(shape("line", { x1: 80, x2: NAMES + scale.width, y1: y + 9, y2: y + 9, class: "grid" }));
      y += 22;
      tier = true;
    }
    const row = drawnLog(log, scale, y);
    parts.push(row.drawing);
    y += row.height;
  }
  const [across, down] = [NAMES + scale.width + MARGIN, y];
  return shape(
    "svg",
    { class: "drawing", width: across, height: down, viewBox: `0 0 ${across} ${down}`, role: "group", "aria-label": label },
    parts,
  );
}

/**
 * @typedef {object} Scale
 * @property {number} first
 * @property {number} end
 * @property {number} width pixels
 * @property {boolean} cells whether each offset has a cell
 * @property {(offset: number) => number} x
 */

/**
 * @param {Log[]} logs
 * @param {number} room pixels
 * @returns {Scale}
 */
function scaleOf(logs, room) {
  const offsets = logs.flatMap((log) => [
    log.start, log.end, ...(log.marks ?? []).map((mark) => mark.offset), ...(log.removed ?? new Map()).keys(),
  ]);
  const first = offsets.length > 0 ? Math.min(...offsets) : 0;
  const last = offsets.length > 0 ? Math.max(...offsets) : 0;
  const end = Math.max(last, first + 1);
  const cells = end - first <= MOST_CELLS;
  const width = cells ? Math.min(Math.max(room, 34 * (end - first)), 64 * (end - first)) : room;
  return { first, end, width, cells, x: (offset) => NAMES + ((offset - first) / (end - first)) * width };
}

/**
 * The round number of offsets between two marks of an axis whose numbers do not touch.
 * @param {number} span offsets
 * @param {number} width pixels
 */
function tickStep(span, width) {
  const least = Math.max(1, (span * TICK) / width);
  const power = 10 ** Math.floor(Math.log10(least));
  return power * ([1, 2, 5, 10].find((times) => times * power >= least) ?? 10);
}

/** @param {Scale} scale */
function axis(scale) {
  const span = scale.end - scale.first;
  const step = scale.cells ? 1 : tickStep(span, scale.width);
  const marks = [];
  for (let offset = Math.ceil(scale.first / step) * step; offset <= scale.end; offset += step) {
    if (scale.cells && offset === scale.end) break;
    const x = scale.x(offset) + (scale.cells ? scale.width / span / 2 : 0);
    marks.push(shape("text", { x, y: 12, class: "small dim", "text-anchor": "middle" }, offset.toLocaleString("en")));
    if (!scale.cells) marks.push(shape("line", { x1: x, x2: x, y1: 16, y2: AXIS, class: "grid" }));
  }
  return shape("g", { "aria-hidden": true }, shape("text", { x: 0, y: 12, class: "small dim" }, "offset"), marks);
}

/**
 * @param {Log} log
 * @param {Scale} scale
 * @param {number} y
 */
function drawnLog(log, scale, y) {
  const bar = y + EPOCHS;
  const marks = drawnMarks(log.marks ?? [], scale, bar);
  const changed = log.changed ? "changed" : "";
  const drawing = shape(
    "g",
    { role: "img", "aria-label": spoken(log), class: log.stopped ? "stopped" : "" },
    shape("title", {}, spoken(log)),
    shape("text", { x: 0, y: bar + 11, class: changed }, log.changed ? `• ${shortened(log.name)}` : shortened(log.name)),
    log.about && shape("text", { x: 0, y: bar + 25, class: "small dim" }, log.about),
    shape("line", { x1: scale.x(scale.first), x2: scale.x(scale.end), y1: bar + BAR, y2: bar + BAR, class: "grid" }),
    tierOnly(log, scale, bar),
    runsOf(log).map((run) => drawnRun(run, log, scale, bar)),
    [...(log.removed ?? [])].map(([offset, text]) => removedRecord(offset, text, scale, bar)),
    marks.parts,
  );
  return { drawing, height: EPOCHS + BAR + Math.max(marks.lines, 1) * LINE + 10 };
}

/**
 * A name that fits before the bar: of an id, the first digits.
 * @param {string} name
 */
function shortened(name) {
  return name.length <= NAME ? name : `${name.slice(0, 8)}…`;
}

/**
 * @param {Log} log
 * @param {Scale} scale
 * @param {number} bar
 */
function tierOnly(log, scale, bar) {
  const local = log.localStart;
  if (log.kind !== "local" || local === undefined || local <= log.start) return null;
  const [from, to] = [scale.x(log.start), scale.x(local)];
  return shape(
    "g",
    {},
    shape("rect", { x: from + 1, y: bar + 2, width: Math.max(to - from - 2, 1), height: BAR - 4, class: "in-tier" }),
    to - from > 80 && shape("text", { x: from + 3, y: bar - 5, class: "small dim" }, "only in the tier"),
  );
}

/**
 * @param {Run} run
 * @param {Log} log
 * @param {Scale} scale
 * @param {number} bar
 */
function drawnRun(run, log, scale, bar) {
  const visible = { ...run, first: Math.max(run.first, log.localStart ?? run.first) };
  const [from, to] = [scale.x(visible.first), scale.x(Math.max(visible.end, visible.first))];
  if (to <= from) return null;
  const name = `LE-${run.epoch}`;
  const fits = to - from > 7 * name.length;
  const parts = [
    shape("rect", { x: from + 1, y: bar - 3, width: Math.max(to - from - 2, 1), height: 3, class: epochClass(run.epoch) }),
    fits && shape("text", { x: from + 3, y: bar - 5, class: "small" }, name),
  ];
  if (scale.cells && log.records !== undefined) {
    for (let offset = visible.first; offset < visible.end; offset++) parts.push(record(offset, run.epoch, log, scale, bar));
  } else {
    parts.push(shape("rect", { x: from, y: bar, width: to - from, height: BAR, class: `record ${epochClass(run.epoch)}` }));
    const count = `${(visible.end - visible.first).toLocaleString("en")} offsets`;
    if (to - from > 7 * count.length) parts.push(shape("text", { x: from + 5, y: bar + 16, class: "small" }, count));
  }
  return shape("g", {}, shape("title", {}, `${name}: offsets ${run.first} to ${run.end - 1}`), parts);
}

/**
 * @param {number} offset
 * @param {number} epoch
 * @param {Log} log
 * @param {Scale} scale
 * @param {number} bar
 */
function record(offset, epoch, log, scale, bar) {
  const [x, width] = [scale.x(offset), scale.x(offset + 1) - scale.x(offset)];
  const text = log.records?.get(offset);
  if (text === undefined) {
    return shape(
      "g",
      {},
      shape("title", {}, `offset ${offset}: no record`),
      shape("rect", { x: x + 2, y: bar + 2, width: width - 4, height: BAR - 4, class: "missing" }),
    );
  }
  const added = log.added?.has(offset);
  const kind = `record ${epochClass(epoch)}${added ? " added" : ""}`;
  return shape(
    "g",
    {},
    shape("title", {}, `offset ${offset}: ${text}, LE-${epoch}${added ? " (new in this step)" : ""}`),
    shape("rect", { x: x + 1, y: bar, width: width - 2, height: BAR, class: kind }),
    shape("text", { x: x + width / 2, y: bar + 16, class: "small", "text-anchor": "middle" }, fitted((added ? "+" : "") + text, width)),
  );
}

/**
 * @param {number} offset
 * @param {string} text
 * @param {Scale} scale
 * @param {number} bar
 */
function removedRecord(offset, text, scale, bar) {
  const [x, width] = [scale.x(offset), scale.x(offset + 1) - scale.x(offset)];
  if (!scale.cells) return null;
  return shape(
    "g",
    {},
    shape("title", {}, `offset ${offset}: ${text} is not in the log any more`),
    shape("rect", { x: x + 3, y: bar + 3, width: width - 6, height: BAR - 6, class: "removed" }),
    shape("text", { x: x + width / 2, y: bar + 16, class: "small removed-text", "text-anchor": "middle" }, fitted(`−${text}`, width)),
  );
}

/**
 * @param {string} text
 * @param {number} width pixels
 */
function fitted(text, width) {
  const room = Math.floor((width - 6) / 6);
  if (text.length <= room) return text;
  const short = text.replace(/msg /, "");
  return short.length <= room ? short : `${short.slice(0, Math.max(room - 1, 1))}…`;
}

/**
 * Lines at the offsets of marks, with their names below the bar, in as many lines of text as they need.
 * @param {Mark[]} marks
 * @param {Scale} scale
 * @param {number} bar
 */
function drawnMarks(marks, scale, bar) {
  /** @type {Map<number, Mark[]>} */
  const byOffset = new Map();
  for (const mark of marks) byOffset.set(mark.offset, [...(byOffset.get(mark.offset) ?? []), mark]);
  /** @type {number[]} */
  const ends = [];
  const parts = [...byOffset].sort(([one], [other]) => one - other).flatMap(([offset, its]) => {
    const x = scale.x(offset);
    const moved = its.some((mark) => mark.moved);
    const text = `${its.map((mark) => (mark.moved ? `•${mark.name}` : mark.name)).join(", ")} ${offset}`;
    const found = ends.findIndex((end) => end < x - 3);
    const line = found < 0 ? ends.length : found;
    ends[line] = x + 6.2 * text.length;
    return [
      shape("line", { x1: x, x2: x, y1: bar - 2, y2: bar + BAR + LINE * line + 4, class: moved ? "mark moved" : "mark" }),
      shape("text", { x: x + 3, y: bar + BAR + LINE * line + 11, class: moved ? "small moved" : "small" }, text),
    ];
  });
  return { parts, lines: ends.length };
}

/**
 * Return a log as a sentence, for screen readers.
 * @param {Log} log
 */
function spoken(log) {
  const runs = runsOf(log).map((run) => `offsets ${run.first} to ${run.end - 1} in LE-${run.epoch}`);
  const marks = (log.marks ?? []).map((mark) => `${mark.name} ${mark.offset}${mark.moved ? " (moved)" : ""}`);
  const state = [log.about].filter(Boolean);
  return `${[log.name, ...state].join(", ")}: ${[...(runs.length > 0 ? runs : ["no records"]), ...marks].join("; ")}`;
}

/**
 * Something that happened: a request with its answer, a state of a node, a read, or an action of the run.
 * @typedef {object} Happening
 * @property {number} at seconds
 * @property {string} kind
 * @property {string} source
 * @property {string | null} target
 * @property {string | null} api
 * @property {string} text
 * @property {string | null} result
 * @property {boolean} error
 * @property {string} line all of it
 */

const LANES = 520;
const WIDEST = 112;
const NARROWEST = 70;
const ROW = 36;

/** A sequence diagram: a column for each node, and a row for each request. Only rows in view have elements. */
export class Exchanges {
  /** @param {{ label: string, chosen?: (index: number) => void }} options */
  constructor({ label, chosen }) {
    /** @type {Happening[]} */
    this._events = [];
    /** @type {string[]} */
    this._nodes = [];
    this._lane = WIDEST;
    this._heads = element("div", { class: "exchange heads" });
    this._list = new LongList({ label, height: ROW, row: (index) => this._row(index), chosen });
    this.element = element("div", { class: "exchanges" }, this._heads, this._list.element);
  }

  /**
   * Draw these events.
   * @param {Happening[]} events
   * @param {string[]} nodes the order of the columns; nodes that take part in nothing have none
   */
  show(events, nodes) {
    const taking = events.filter((one) => one.kind !== "action");
    const seen = new Set(taking.flatMap((one) => (one.target === null ? [one.source] : [one.source, one.target])));
    this._events = events;
    this._nodes = [...nodes.filter((node) => seen.has(node)), ...[...seen].filter((node) => !nodes.includes(node))];
    this._lane = Math.min(Math.max(Math.floor(LANES / Math.max(this._nodes.length, 1)), NARROWEST), WIDEST);
    this._list.element.style.height = `${Math.min(Math.max(events.length, 1) * ROW + 4, 12 * ROW)}px`;
    this._heads.replaceChildren(
      element("span", { class: "at" }, "s"),
      this._lanes(this._nodes.map((node, at) => shape("text", { x: this._middle(at), y: 15, "text-anchor": "middle" }, node)), 20),
      element("span", {}, "request and answer"),
    );
    this._columns(this._heads);
    this._list.element.scrollTop = 0;
    this._list.show(events.length);
  }

  /** @param {number} index */
  _row(index) {
    const event = this._events[index];
    if (event === undefined) return element("div");
    const row = element(
      "div",
      { class: "exchange", title: event.line },
      element("span", { class: "at" }, event.at.toFixed(3)),
      this._lanes(this._drawn(event), ROW),
      sentence(event),
    );
    this._columns(row);
    return row;
  }

  /** @param {HTMLElement} row */
  _columns(row) {
    row.style.gridTemplateColumns = `4.2rem ${this._nodes.length * this._lane}px minmax(12rem, 1fr)`;
  }

  /**
   * @param {SVGElement[]} parts
   * @param {number} height
   */
  _lanes(parts, height) {
    const lanes = height < ROW ? [] : this._nodes.map((_, at) => shape("line", { x1: this._middle(at), x2: this._middle(at), y1: 0, y2: height, class: "lane" }));
    return shape("svg", { class: "lanes drawing", width: this._nodes.length * this._lane, height, "aria-hidden": true }, lanes, parts);
  }

  /** @param {number} at */
  _middle(at) {
    return (at + 0.5) * this._lane;
  }

  /**
   * @param {Happening} event
   * @returns {SVGElement[]}
   */
  _drawn(event) {
    if (event.kind === "action") return [];
    const from = this._middle(this._nodes.indexOf(event.source));
    if (event.target === null || event.target === event.source) {
      return [shape("g", { class: event.error ? "error" : "" }, shape("circle", { cx: from, cy: ROW / 2, r: 5, class: "point" }))];
    }
    const to = this._middle(this._nodes.indexOf(event.target));
    const way = Math.sign(to - from);
    const [y, tip] = [ROW / 2 + 4, to - 3 * way];
    const mark = event.error ? `✗ ${event.api ?? ""}` : (event.api ?? "");
    return [
      shape(
        "g",
        { class: event.error ? "error" : "" },
        shape("line", { x1: from, x2: tip - 6 * way, y1: y, y2: y, class: "arrow" }),
        shape("path", { d: `M${tip},${y} l${-9 * way},-5 v10 z`, class: "head" }),
        shape("text", { x: (from + to) / 2, y: y - 6, class: "small", "text-anchor": "middle" }, fitted(mark, Math.abs(to - from) + 12)),
      ),
    ];
  }
}

/** @param {Happening} event */
function sentence(event) {
  if (event.kind === "action") return element("span", { class: "text action" }, `▸ ${event.line}`);
  if (!event.error || event.result === null || !event.line.endsWith(event.result)) {
    return element("span", { class: event.error ? "text bad" : "text" }, event.line);
  }
  const before = event.line.slice(0, event.line.length - event.result.length);
  return element("span", { class: "text" }, before, element("span", { class: "bad" }, `✗ ${event.result}`));
}
