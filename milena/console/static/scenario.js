// The page of one run of a scenario: a step at a time, forward and back by button and key.

import { byId, carried, element, nameInAddress } from "./dom.js";
import { Exchanges, drawLogs } from "./draw.js";
import { LongList } from "./list.js";
import { changesOf, drawTables, logsOf } from "./played.js";

/** @typedef {import("./played.js").Run} Run */
/** @typedef {import("./played.js").Step} Step */

const NODES = ["producer", "consumer", "A", "B", "C", "D", "E", "controller", "tier"];
const ROW = 44;

/** Shows the steps of a run in an element. Also for a page that gets its steps one after the other. */
export class ScenarioView {
  /**
   * @param {HTMLElement} place
   * @param {Run} run
   * @param {{address?: boolean}} [options] `address`: whether the page's address names the step
   */
  constructor(place, run, { address = true } = {}) {
    this.run = run;
    this._address = address;
    this.at = -1;
    this._title = element("h2", { id: "step-title", tabindex: -1 });
    this._body = element("div", { class: "step-body" });
    this._exchanges = new Exchanges({ label: "requests and events of this step" });
    this._steps = new LongList({ label: "steps", height: ROW, row: (at) => this._stepRow(at), chosen: (at) => this.show(at) });
    this._first = button("First", "First step (Home)", () => this.show(0));
    this._back = button("◀ Back", "Previous step (left arrow)", () => this.show(this.at - 1));
    this._next = button("Next ▶", "Next step (right arrow)", () => this.show(this.at + 1));
    this._last = button("Last", "Last step (End)", () => this.show(this.run.steps.length - 1));
    this._place = element("span", { role: "status", "aria-live": "polite", id: "place" });
    place.replaceChildren(this._head(), this._controls(), this._content());
    this._ends = new AbortController();
    const { signal } = this._ends;
    document.addEventListener("keydown", (event) => this._key(event), { signal });
    if (address) window.addEventListener("hashchange", () => this.show(fromHash()), { signal });
    this.refresh();
  }

  /** Draw the list of steps again, and the current step: after steps were added to the run. */
  refresh() {
    this._steps.show(this.run.steps.length);
    this.show(this.at < 0 ? (this._address ? fromHash() : 0) : this.at);
  }

  /** Stop listening to keys and to the address. */
  close() {
    this._ends.abort();
  }

  _head() {
    const { run } = this;
    const variant = run.variant ? ` (${run.variant})` : "";
    const passed = run.outcome === "passed";
    const epochs = Object.entries(run.epochs).filter(([theirs, ours]) => Number(theirs) !== ours);
    return element(
      "header",
      {},
      element("h1", {}, run.title),
      element(
        "p",
        { class: "dim" },
        [`${run.scenario}${variant}`, run.document, run.world === "simulation" ? "in simulation" : `on ${run.world}`].filter(Boolean).join(" · "),
      ),
      element("p", { class: passed ? "good" : "bad" }, passed ? "✓ passed" : "✗ failed", run.conclusion ? `. ${run.conclusion}` : ""),
      run.error && element("p", { class: "bad" }, run.error),
      run.note && element("p", {}, run.note),
      epochs.length > 0 && element("p", { class: "dim" }, epochs.map(([theirs, ours]) => `LE-${theirs} is leader epoch ${ours} in this run`).join("; "), "."),
    );
  }

  _controls() {
    const keys = element("span", { class: "dim keys" }, element("kbd", {}, "←"), " ", element("kbd", {}, "→"), " steps");
    return element("nav", { "aria-label": "steps", class: "controls" }, this._first, this._back, this._next, this._last, this._place, keys);
  }

  _content() {
    return element("div", { class: "columns" }, this._steps.element, element(this._address ? "main" : "div", {}, this._title, this._body));
  }

  /** @param {number} at */
  _stepRow(at) {
    const step = this.run.steps[at];
    if (step === undefined) return element("div");
    const wrong = step.wrong !== null;
    return element(
      "div",
      { title: step.title },
      element(
        "span",
        { class: "two-lines" },
        element("span", { class: wrong ? "bad" : "good" }, wrong ? "✗" : "✓", element("span", { class: "hidden-text" }, wrong ? "failed" : "passed")),
        ` ${step.number}. ${step.title}`,
      ),
    );
  }

  /** @param {KeyboardEvent} event */
  _key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) return;
    const to = { ArrowLeft: this.at - 1, ArrowRight: this.at + 1, Home: 0, End: this.run.steps.length - 1 }[event.key];
    if (to === undefined) return;
    this.show(to);
    event.preventDefault();
  }

  /**
   * Show a step. A number outside of the run shows the first or last one.
   * @param {number} wanted counted from 0
   */
  show(wanted) {
    const last = this.run.steps.length - 1;
    const at = Math.min(Math.max(wanted, 0), Math.max(last, 0));
    const step = this.run.steps[at];
    if (step === undefined) return;
    this.at = at;
    this._title.textContent = `${step.number}. ${step.title}`;
    this._place.textContent = `Step ${at + 1} of ${last + 1}`;
    this._first.disabled = this._back.disabled = at === 0;
    this._last.disabled = this._next.disabled = at === last;
    this._body.replaceChildren(...this._parts(step, this.run.steps[at - 1]));
    this._exchanges.show(step.events, NODES);
    this._steps.choose(at);
    if (this._address) nameInAddress(`#step-${at + 1}`);
  }

  /**
   * @param {Step} step
   * @param {Step | undefined} before
   * @returns {HTMLElement[]}
   */
  _parts(step, before) {
    const changes = changesOf(step, before);
    return [
      step.quote ? quoted(step.quote, this.run.document) : null,
      step.wrong === null ? null : element("p", { class: "bad", id: "wrong" }, `✗ ${step.wrong}`),
      list("What the scenario does", step.events.length > 0 ? [] : step.actions, "code"),
      step.events.length > 0 ? section("Requests and events", this._exchanges.element) : null,
      ...[...logsOf(step, before)].map(([partition, logs]) => drawnLogs(partition, logs)),
      list(`Changes since step ${before?.number ?? ""}`, changes, "changes"),
      step.tables.length > 0 ? section("Expected and actual", drawTables(step.tables)) : null,
      step.checks.length > 0 ? section("Also checked", checks(step)) : null,
    ].filter((part) => part !== null);
  }
}

/** The step that the address names, counted from 0. */
function fromHash() {
  const found = /^#step-(\d+)$/.exec(location.hash);
  return found === null ? 0 : Number(found[1]) - 1;
}

/**
 * @param {string} text
 * @param {string} title
 * @param {() => void} action
 */
function button(text, title, action) {
  return element("button", { type: "button", title, onclick: action }, text);
}

/**
 * @param {string} title
 * @param {HTMLElement | SVGElement} body
 */
function section(title, body) {
  return element("section", {}, element("h3", {}, title), body);
}

/**
 * @param {string} title
 * @param {string[]} lines
 * @param {string} kind
 */
function list(title, lines, kind) {
  return lines.length === 0 ? null : section(title, element("ul", { class: kind }, lines.map((line) => element("li", {}, line))));
}

/**
 * @param {string} quote
 * @param {string | null} document
 */
function quoted(quote, document) {
  return element("blockquote", {}, element("p", {}, quote), document && element("footer", {}, document));
}

/**
 * @param {string} partition
 * @param {import("./draw.js").Log[]} logs
 */
function drawnLogs(partition, logs) {
  const title = partition === "" ? "Logs" : `Logs of ${partition}`;
  const drawing = drawLogs(logs, { label: `${title} by offset` });
  const changed = logs.some((log) => log.changed || log.added?.size || log.removed?.size || log.marks?.some((mark) => mark.moved));
  const legend = changed && element("p", { class: "dim" }, "In this step: + new record, − removed record, • changed state or offset.");
  return section(title, element("div", {}, legend, scrolling(title, drawing)));
}

/**
 * @param {string} title
 * @param {SVGElement} drawing
 */
function scrolling(title, drawing) {
  return element("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, drawing);
}

/** @param {Step} step */
function checks(step) {
  return element(
    "ul",
    {},
    step.checks.map(({ text, wrong }) =>
      element("li", { class: wrong === null ? "" : "bad" }, wrong === null ? `✓ ${text}` : `✗ ${text}: ${wrong}`),
    ),
  );
}

if (document.getElementById("scenario-run") !== null) new ScenarioView(byId("page"), carried("scenario-run"));
