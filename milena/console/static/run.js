// The story of a run: its time axis, its trace, and the state of the cluster at the chosen line.

import { element, nameInAddress } from "./dom.js";
import { LongList } from "./list.js";
import { Timeline } from "./timeline.js";

/** @typedef {import("./timeline.js").Story} Story */

const ROW = 24;
const KINDS = ["fault", "violation", "leader", "warning", "client", "log"];

/** Shows a story in an element: line by line, forward and back by button and key. */
export class StoryView {
  /**
   * @param {HTMLElement} place
   * @param {Story} story
   */
  constructor(place, story) {
    this.story = story;
    /** @type {number[]} */
    this._shown = [];
    this._at = 0;
    this._timeline = new Timeline(story, (at) => this._choose(this._nearest(at)));
    this._lines = new LongList({ label: "trace", height: ROW, row: (at) => this._row(at), chosen: (at) => this._choose(at) });
    this._filter = element("input", { type: "search", id: "filter", oninput: () => this._narrow() });
    this._kind = element(
      "select",
      { id: "kind", onchange: () => this._narrow() },
      element("option", { value: "" }, "all lines"),
      KINDS.filter((kind) => story.trace.some((line) => line[2] === kind)).map((kind) => element("option", { value: kind }, `${kind} lines`)),
    );
    this._place = element("span", { role: "status", "aria-live": "polite", id: "place" });
    this._state = element("div", { class: "state" });
    place.replaceChildren(this._controls(), this._timeline.element, this._violations(), this._below());
    document.addEventListener("keydown", (event) => this._key(event));
    const named = /^#line-(\d+)$/.exec(location.hash);
    this._narrow();
    this._choose(named === null ? this._firstViolation() : this._nearestIndex(Number(named[1]) - 1));
  }

  _controls() {
    return element(
      "nav",
      { "aria-label": "trace lines", class: "controls" },
      this._button("First", "First line (Home)", () => this._choose(0)),
      this._button("◀ Back", "Previous line (left arrow)", () => this._choose(this._at - 1)),
      this._button("Next ▶", "Next line (right arrow)", () => this._choose(this._at + 1)),
      this._button("Last", "Last line (End)", () => this._choose(this._shown.length - 1)),
      this._button("Next fault", "Next fault (f; back: shift and f)", () => this._find("fault", 1)),
      this.story.violations.length > 0 && this._button("Next violation", "Next violation (v)", () => this._find("violation", 1)),
      this._place,
    );
  }

  /**
   * @param {string} text
   * @param {string} title
   * @param {() => void} action
   */
  _button(text, title, action) {
    return element("button", { type: "button", title, onclick: action }, text);
  }

  _violations() {
    const { violations } = this.story;
    if (violations.length === 0) return element("p", { class: "good" }, "✓ no violation");
    return element(
      "section",
      {},
      element("h3", {}, "Violations"),
      element("ol", { class: "violations", tabindex: 0, "aria-label": "violations" }, violations.slice(0, 100).map((one) => this._violation(one))),
      violations.length > 100 && element("p", { class: "dim" }, `The first 100 of ${violations.length}.`),
    );
  }

  /** @param {import("./timeline.js").Violation} one */
  _violation(one) {
    const text = `${[one.anomaly, one.where].filter(Boolean).join(", ")}: ${one.text}`;
    if (one.at === null) return element("li", { class: "bad" }, text);
    const { at } = one;
    const link = element("button", { type: "button", class: "link", onclick: () => this._choose(this._nearest(at)) }, `at ${at.toFixed(3)} s`);
    return element("li", {}, element("span", { class: "bad" }, text), " ", link);
  }

  _below() {
    const filter = element(
      "div",
      { class: "filter" },
      element("label", { for: "filter" }, "Lines with "), this._filter, " ",
      element("label", { for: "kind", class: "hidden-text" }, "kind of lines"), this._kind,
    );
    return element("div", { class: "story" }, element("section", {}, element("h3", {}, "Trace"), filter, this._lines.element), this._state);
  }

  _narrow() {
    const text = this._filter.value.toLowerCase();
    const kind = this._kind.value;
    const before = this._shown[this._at] ?? 0;
    this._shown = [];
    this.story.trace.forEach(([, line, its], index) => {
      if ((kind === "" || its === kind) && (text === "" || line.toLowerCase().includes(text))) this._shown.push(index);
    });
    this._lines.show(this._shown.length);
    const near = this._shown.findIndex((index) => index >= before);
    this._choose(near < 0 ? this._shown.length - 1 : near);
  }

  /** @param {number} at */
  _row(at) {
    const line = this.story.trace[this._shown[at] ?? -1];
    if (line === undefined) return element("div");
    const [time, text, kind] = line;
    const sign = /** @type {Record<string, string>} */ ({ violation: "✗", fault: "⚡", warning: "!", leader: "◆" })[kind] ?? "";
    return element(
      "div",
      { class: `line ${kind}`, title: text },
      element("span", { class: "at" }, time.toFixed(3)),
      element("span", { class: "sign", "aria-hidden": true }, sign),
      element("span", {}, text),
    );
  }

  /** @param {number} wanted among the shown lines */
  _choose(wanted) {
    const at = Math.min(Math.max(wanted, 0), this._shown.length - 1);
    const index = this._shown[at];
    const line = this.story.trace[index ?? -1];
    if (index === undefined || line === undefined) {
      this._place.textContent = "no line";
      return;
    }
    this._at = at;
    this._place.textContent = `Line ${at + 1} of ${this._shown.length}`;
    this._lines.choose(at);
    this._timeline.mark(line[0]);
    this._state.replaceChildren(...this._stateAt(line));
    nameInAddress(`#line-${index + 1}`);
  }

  /** @param {number} time */
  _nearest(time) {
    let [low, high] = [0, this._shown.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const line = this.story.trace[this._shown[middle] ?? -1];
      if (line !== undefined && line[0] < time) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, this._shown.length - 1);
  }

  /**
   * @param {string} kind
   * @param {number} way 1: forward, -1: back
   */
  _find(kind, way) {
    for (let at = this._at + way; at >= 0 && at < this._shown.length; at += way) {
      if (this.story.trace[this._shown[at] ?? -1]?.[2] === kind) {
        this._choose(at);
        return;
      }
    }
  }

  /** @param {[number, string, string]} line */
  _stateAt([time, text, kind]) {
    const faults = this.story.faults.filter((one) => one.begun <= time && time < one.mended);
    const fenced = this.story.nodes.filter(({ id }) => last(this.story.brokers.filter((one) => one.node === id), time)?.fenced);
    return [
      element("h3", {}, `At ${time.toFixed(3)} s`),
      element("p", { class: kind === "violation" ? "bad code" : "code" }, text),
      listed("Faults", faults.map((one) => `${one.kind} ${one.nodes.join(" ")} ${one.text}`)),
      listed("Fenced", fenced.map((node) => node.name)),
      this._partitions(time),
    ];
  }

  /** @param {number} time */
  _partitions(time) {
    const rows = this.story.partitions.flatMap(({ name, states }) => {
      const state = last(states, time);
      if (state === undefined) return [];
      const now = state.at === time;
      return [element(
        "tr",
        { class: state.leader < 0 ? "bad" : now ? "now" : "" },
        element("td", {}, now ? `• ${name}` : name),
        element("td", { class: "number" }, state.leader < 0 ? "none" : state.leader),
        element("td", { class: "number" }, state.epoch),
        element("td", {}, state.isr.join(", ") || "empty"),
      )];
    });
    if (rows.length === 0) return element("div");
    const titles = ["partition", "leader", "leader epoch", "ISR"];
    return element(
      "div",
      { class: "scroll", tabindex: 0, role: "group", "aria-label": "partitions" },
      element("table", {}, element("thead", {}, element("tr", {}, titles.map((title) => element("th", { scope: "col" }, title)))), element("tbody", {}, rows)),
    );
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) return;
    const act = {
      ArrowLeft: () => this._choose(this._at - 1),
      ArrowRight: () => this._choose(this._at + 1),
      Home: () => this._choose(0),
      End: () => this._choose(this._shown.length - 1),
      f: () => this._find("fault", 1),
      F: () => this._find("fault", -1),
      v: () => this._find("violation", 1),
      V: () => this._find("violation", -1),
    }[event.key];
    if (act === undefined) return;
    act();
    event.preventDefault();
  }

  _firstViolation() {
    return Math.max(this._shown.findIndex((index) => this.story.trace[index]?.[2] === "violation"), 0);
  }

  /** @param {number} index of the trace */
  _nearestIndex(index) {
    return Math.max(this._shown.findIndex((shown) => shown >= index), 0);
  }
}

/**
 * The last of the entries, which are in order, that is not later than a time.
 * @template {{ at: number }} T
 * @param {T[]} entries
 * @param {number} time
 * @returns {T | undefined}
 */
function last(entries, time) {
  return entries.findLast((one) => one.at <= time);
}

/**
 * @param {string} title
 * @param {string[]} lines
 */
function listed(title, lines) {
  return lines.length === 0 ? element("div") : element("p", {}, element("strong", {}, `${title}: `), lines.join("; "));
}
