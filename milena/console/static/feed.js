// The events of the cluster, newest first.

import { element } from "./dom.js";
import { LongList } from "./list.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").Event} Event */

const ROW = 40;

/** Kinds of events by what a reader looks for. @type {Record<string, string[]>} */
export const KINDS = {
  "all events": [],
  "elections and ISR": ["election", "leaderless", "isr", "reassignment"],
  "nodes and fencing": ["fenced", "unfenced", "registered", "started", "ended", "paused", "resumed"],
  "logs: truncation, cleaning, retention": ["truncated", "cleaned", "retention", "follower_state"],
  "tier": ["uploaded", "tier_expired", "local_deleted"],
  "transactions": ["transactional_id", "transaction_begun", "transaction_prepared", "transaction_completed", "transaction_timed_out", "producer_fenced", "producer_refused", "transactions"],
  "faults and actions": ["fault", "rule", "action"],
  "topics and groups": ["topic_created", "topic_deleted", "group"],
  "log lines": ["log"],
};

/** @param {number} ms */
export function clockTime(ms) {
  return new Date(ms).toISOString().slice(11, 23);
}

export class Feed {
  /** @param {Store} store */
  constructor(store) {
    this._store = store;
    this._kinds = "all events";
    /** @type {Event[]} */
    this._shown = [];
    this._list = new LongList({ label: "Events, newest first", height: ROW, row: (index) => this._row(index) });
    this.element = element("div", { class: "feed" }, this._list.element);
    this._ends = store.listen((changes) => void (changes.events && this._changed()));
    this._changed();
  }

  close() {
    this._ends();
  }

  /** @param {string} kinds a key of KINDS */
  filter(kinds) {
    this._kinds = kinds;
    this._changed();
  }

  _changed() {
    const kinds = KINDS[this._kinds] ?? [];
    const events = this._store.state?.events ?? [];
    this._shown = (kinds.length ? events.filter((event) => kinds.includes(event.kind)) : [...events]).reverse();
    this._list.show(this._shown.length);
  }

  /** @param {number} index */
  _row(index) {
    const event = /** @type {Event} */ (this._shown[index]);
    return element(
      "div",
      { class: "event", title: event.text },
      element("span", { class: "dim code" }, clockTime(event.at_ms)),
      element("span", { class: "kind" }, event.kind.replaceAll("_", " "), event.node ? ` · ${event.node}` : ""),
      element("span", { class: event.error ? "text bad" : "text" }, event.error ? `✗ ${event.text}` : event.text),
    );
  }
}
