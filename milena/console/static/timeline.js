// A time axis: nodes and their faults, leaders and ISR of partitions, rates, and violations.

import { element, shape } from "./dom.js";
import { epochClass } from "./draw.js";

/** @typedef {{ kind: string, nodes: number[], begun: number, mended: number, text: string, effect: string | null }} Fault */
/** @typedef {{ anomaly: string, where: string, text: string, at: number | null }} Violation */
/** @typedef {{ at: number, leader: number, epoch: number, isr: number[] }} State leader -1: none */
/** @typedef {{ name: string, unit: string, values: number[] }} Rate a value for each `width` seconds */

/**
 * What happened in a run. Times are seconds since its start.
 * @typedef {object} Story
 * @property {number} seconds
 * @property {{ id: number, name: string }[]} nodes
 * @property {{ at: number, node: number, fenced: boolean }[]} brokers changes of registrations
 * @property {Fault[]} faults
 * @property {{ name: string, states: State[] }[]} partitions
 * @property {{ begun: number, width: number, series: Rate[] }} rates
 * @property {Violation[]} violations
 * @property {[number, string, string][]} trace time, text, kind
 */

/** @typedef {{ from: number, to: number, texts: string[], title: string, kind: string, row: number }} Item `texts`: the longest first */
/** @typedef {{ name: string, height: number, items: Item[], rate?: Rate }} Lane */

const NAMES = 150;
const AXIS = 24;
const ROW = 17;
const RATE = 40;
const NARROW = 2;

/** The drawing of a story between two times. It has elements for what is in that window only. */
export class Timeline {
  /**
   * @param {Story} story
   * @param {(at: number) => void} chosen called with the time of a click
   */
  constructor(story, chosen) {
    this.story = story;
    this.from = 0;
    this.to = Math.max(story.seconds, 1);
    this._at = 0;
    this._width = 1000;
    /** @type {SVGElement | null} */
    this._cursor = null;
    this._lanes = lanesOf(story);
    this._box = element("div", { class: "timeline scroll", tabindex: 0, role: "group", "aria-label": "time axis" });
    this._place = element("span", { class: "dim", "aria-live": "polite" });
    this.element = element(
      "div",
      {},
      element(
        "div",
        { class: "zoom" },
        zoomButton("Zoom in", "+", () => this._zoom(0.5)),
        zoomButton("Zoom out", "−", () => this._zoom(2)),
        zoomButton("Earlier", "◀", () => this._pan(-0.5)),
        zoomButton("Later", "▶", () => this._pan(0.5)),
        this._place,
      ),
      this._box,
    );
    this._box.addEventListener("click", (event) => {
      const drawing = this._box.firstElementChild;
      if (drawing === null) return;
      const x = event.clientX - drawing.getBoundingClientRect().left;
      if (x >= NAMES) chosen(this.from + ((x - NAMES) / (this._width - NAMES)) * (this.to - this.from));
    });
    new ResizeObserver(() => this._resize()).observe(this._box);
  }

  _resize() {
    const width = Math.max(this._box.clientWidth - 4, 500);
    if (width === this._width) return;
    this._width = width;
    this._draw();
  }

  /**
   * Mark a time; the window follows it.
   * @param {number} at
   */
  mark(at) {
    this._at = at;
    const span = this.to - this.from;
    if (at < this.from || at > this.to) this._window(at - span / 2, span);
    else if (this._cursor !== null) {
      this._moveCursor();
      return;
    }
    this._draw();
  }

  _moveCursor() {
    this._cursor?.setAttribute("transform", `translate(${this._x(this._at).toFixed(1)} 0)`);
  }

  /** @param {number} factor of the seconds in view */
  _zoom(factor) {
    const span = Math.min(Math.max((this.to - this.from) * factor, 0.5), Math.max(this.story.seconds, 1));
    const share = (this._at - this.from) / (this.to - this.from);
    this._window(this._at - span * Math.min(Math.max(share, 0), 1), span);
    this._draw();
  }

  /** @param {number} share of the seconds in view */
  _pan(share) {
    const span = this.to - this.from;
    this._window(this.from + span * share, span);
    this._draw();
  }

  /**
   * @param {number} from
   * @param {number} span
   */
  _window(from, span) {
    this.from = Math.max(0, Math.min(from, Math.max(this.story.seconds, 1) - span));
    this.to = this.from + span;
  }

  /** @param {number} at */
  _x(at) {
    const share = (Math.min(Math.max(at, this.from), this.to) - this.from) / (this.to - this.from);
    return NAMES + share * (this._width - NAMES);
  }

  _draw() {
    const parts = [this._axis()];
    let y = AXIS;
    for (const lane of this._lanes) {
      parts.push(shape("text", { x: 0, y: y + 12, class: "small" }, lane.name));
      parts.push(shape("line", { x1: 0, x2: this._width, y1: y + lane.height + 2, y2: y + lane.height + 2, class: "grid" }));
      parts.push(lane.rate === undefined ? this._items(lane, y) : this._rate(lane.rate, y));
      y += lane.height + 5;
    }
    this._cursor = shape(
      "g",
      {},
      shape("line", { x1: 0, x2: 0, y1: 14, y2: y, class: "cursor" }),
      shape("path", { d: "M-5,8 h10 l-5,8 z", class: "cursor-head" }),
    );
    this._moveCursor();
    parts.push(this._cursor);
    const { faults, violations } = this.story;
    const label = `${this.story.seconds.toFixed(0)} seconds; faults: ${faults.length}, violations: ${violations.length}`;
    this._box.replaceChildren(
      shape("svg", { class: "drawing", width: this._width, height: y + 2, role: "img", "aria-label": label }, parts),
    );
    this._place.textContent = `${this.from.toFixed(1)} to ${this.to.toFixed(1)} s`;
  }

  _axis() {
    const step = niceStep((this.to - this.from) / 10);
    const marks = [shape("text", { x: 0, y: 12, class: "small dim" }, "seconds")];
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = this._x(at);
      marks.push(shape("line", { x1: x, x2: x, y1: 16, y2: AXIS - 2, class: "grid" }));
      marks.push(shape("text", { x, y: 12, class: "small dim", "text-anchor": "middle" }, String(Number(at.toFixed(3)))));
    }
    return shape("g", {}, marks);
  }

  /**
   * @param {Lane} lane
   * @param {number} y
   */
  _items(lane, y) {
    const parts = [];
    /** @type {Map<number, number>} */
    const ends = new Map();
    for (const item of lane.items) {
      if (item.to < this.from || item.from > this.to) continue;
      const [from, to] = [this._x(item.from), this._x(item.to)];
      const end = ends.get(item.row) ?? -1;
      const width = Math.max(to - from, NARROW);
      if (from + width < end + 1) continue;
      ends.set(item.row, from + width);
      parts.push(drawnItem(item, from, width, y + item.row * ROW));
    }
    return shape("g", {}, parts);
  }

  /**
   * @param {Rate} rate
   * @param {number} y
   */
  _rate(rate, y) {
    const { begun, width } = this.story.rates;
    const most = Math.max(...rate.values, 0);
    const first = Math.max(Math.floor((this.from - begun) / width), 0);
    const last = Math.min(Math.ceil((this.to - begun) / width), rate.values.length);
    const wide = Math.max(1, Math.floor((last - first) / this._width));
    let path = "";
    for (let at = first; at < last; at += wide) {
      const value = Math.max(...rate.values.slice(at, at + wide));
      const height = most === 0 ? 0 : (value / most) * (RATE - 4);
      const [from, to] = [this._x(begun + at * width), this._x(begun + Math.min(at + wide, last) * width)];
      path += `M${from.toFixed(1)},${y + RATE} v${(-height).toFixed(1)} H${to.toFixed(1)} v${height.toFixed(1)} z`;
    }
    return shape(
      "g",
      {},
      shape("title", {}, `${rate.name}: at most ${most.toFixed(0)} ${rate.unit}`),
      shape("text", { x: 0, y: y + 26, class: "small dim" }, `at most ${most.toFixed(0)} ${rate.unit}`),
      shape("path", { d: path, class: "rate" }),
    );
  }
}

/**
 * @param {Item} item
 * @param {number} x
 * @param {number} width
 * @param {number} y
 */
function drawnItem(item, x, width, y) {
  const room = Math.floor((width - 5) / 5.8);
  const text = item.texts.find((one) => one.length <= room) ?? "";
  return shape(
    "g",
    { class: `item ${item.kind}` },
    shape("title", {}, item.title),
    shape("rect", { x, y: y + 1, width, height: ROW - 3, rx: 2 }),
    text !== "" && shape("text", { x: x + 3, y: y + 12, class: "small" }, text),
  );
}

/** @param {Story} story */
function lanesOf(story) {
  /** @type {Lane[]} */
  const lanes = [];
  if (story.violations.length > 0) lanes.push(violationLane(story));
  for (const node of story.nodes) lanes.push(nodeLane(story, node));
  const others = story.faults.filter((fault) => !fault.nodes.some((node) => story.nodes.some(({ id }) => id === node)));
  if (others.length > 0) lanes.push(stacked("other faults", others.map(faultItem), 0));
  for (const rate of story.rates.series) lanes.push({ name: rate.name, height: RATE, items: [], rate });
  for (const { name, states } of story.partitions) {
    lanes.push({ name, height: ROW, items: states.map((state, at) => stateItem(name, state, states[at + 1]?.at ?? story.seconds)) });
  }
  return lanes;
}

/** @param {Story} story */
function violationLane(story) {
  const wide = story.seconds / 30;
  const items = story.violations.map((one, number) => {
    const from = Math.max(0, Math.min(one.at ?? story.seconds, story.seconds - wide));
    return { from, to: from + wide, texts: [`✗ ${number + 1}`, "✗"], title: `${one.anomaly} ${one.where}: ${one.text}`, kind: "violation", row: 0 };
  });
  return stacked("violations", items, 0, [], 3);
}

/**
 * @param {Story} story
 * @param {{ id: number, name: string }} node
 */
function nodeLane(story, node) {
  const changes = story.brokers.filter((one) => one.node === node.id);
  const known = changes.map((one, at) => {
    const to = changes[at + 1]?.at ?? story.seconds;
    const text = one.fenced ? "✗ fenced" : "registered";
    return { from: one.at, to, texts: one.fenced ? [text, "✗"] : [text], title: `${node.name}: ${text} from ${one.at.toFixed(3)} to ${to.toFixed(3)} s`, kind: one.fenced ? "fenced" : "up", row: 0 };
  });
  const faults = story.faults.filter((fault) => fault.nodes.includes(node.id)).map(faultItem);
  return stacked(node.name, faults, known.length > 0 ? 1 : 0, known);
}

/**
 * Return a lane whose items lie in as many rows as needed.
 * @param {string} name
 * @param {Item[]} items
 * @param {number} first the first row that is free
 * @param {Item[]} [before] items above them
 * @param {number} [most] rows; in the last one, items may cover others
 * @returns {Lane}
 */
function stacked(name, items, first, before = [], most = Infinity) {
  /** @type {number[]} */
  const ends = [];
  const placed = [...items].sort((one, other) => one.from - other.from).map((item) => {
    const found = ends.findIndex((end) => end <= item.from);
    const row = Math.min(found < 0 ? ends.length : found, most - 1);
    ends[row] = item.to;
    return { ...item, row: first + row };
  });
  return { name, height: Math.max(first + ends.length, 1) * ROW, items: [...before, ...placed] };
}

/** @param {Fault} fault */
function faultItem(fault) {
  const effect = fault.effect === null ? "" : `; ${fault.effect}`;
  const more = fault.text === "" ? "" : `; ${fault.text}`;
  const nodes = fault.nodes.length > 0 ? ` of ${fault.nodes.join(", ")}` : "";
  const title = `${fault.kind}${nodes}, ${fault.begun.toFixed(3)} to ${fault.mended.toFixed(3)} s${more}${effect}`;
  return { from: fault.begun, to: fault.mended, texts: [fault.kind, fault.kind.slice(0, 4), fault.kind.slice(0, 1)], title, kind: "fault", row: 0 };
}

/**
 * @param {string} name
 * @param {State} state
 * @param {number} to
 */
function stateItem(name, state, to) {
  const isr = `ISR ${state.isr.join(" ")}`;
  const text = state.leader < 0 ? `✗ no leader, ${isr}` : `${state.leader} leads, ${isr}`;
  const title = `${name}: ${text}, leader epoch ${state.epoch}, ${state.at.toFixed(3)} to ${to.toFixed(3)} s`;
  const leader = state.leader < 0 ? "✗" : String(state.leader);
  const texts = [text, `${leader}: ${state.isr.join(" ")}`, leader];
  return { from: state.at, to, texts, title, kind: state.leader < 0 ? "no-leader" : `leader ${epochClass(state.leader)}`, row: 0 };
}

/** @param {number} least */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? 10 * power;
}

/**
 * @param {string} name
 * @param {string} sign
 * @param {() => void} action
 */
function zoomButton(name, sign, action) {
  return element("button", { type: "button", title: name, onclick: action }, sign, element("span", { class: "hidden-text" }, ` ${name}`));
}
