// The list of all partitions. A row is painted again only if its partition's data is another object than before.

import { LINE, paint, palette } from "./bars.js";
import { element } from "./dom.js";
import { LongList } from "./list.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").Part} Part */
/** @typedef {import("./types.js").Node} Node */
/** @typedef {{topic: string, number: number}} Place */

const HEAD = 22;
const GAP = 8;
const KEPT_ROWS = 48;

/** Which partitions a list shows. @type {Record<string, {title: string, has: (part: Part) => boolean}>} */
export const CHOICES = {
  all: { title: "all", has: () => true },
  behind: { title: "not all in ISR", has: (part) => part[4].length < part[3].length },
  leaderless: { title: "without a leader", has: (part) => part[0] < 0 },
  moving: { title: "being reassigned", has: (part) => part[5].length + part[6].length > 0 },
  tier: { title: "in the tier", has: (part) => Object.values(part[8]).some((replica) => replica[6] >= 0) },
};

/**
 * The ISR with broker epochs: `1@12 2@13`.
 * @param {Part} part
 * @param {Record<string, Node>} nodes
 */
export function isrText(part, nodes) {
  return part[4].map((id) => `${id}@${nodes[`broker-${id}`]?.epoch ?? "?"}`).join(" ") || "empty";
}

class Row {
  constructor() {
    /** @type {Part | null | undefined} */
    this.part = undefined;
    this.painted = "";
    this.name = element("b", {});
    this.about = element("span", { class: "dim" });
    this.state = element("span", { class: "bad" });
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.element = element("div", { class: "partition" }, element("div", { class: "heading" }, this.name, " ", this.about, " ", this.state), this.canvas);
  }

  /**
   * @param {Place} place
   * @param {Part | null} part
   * @param {Record<string, Node>} nodes
   * @param {number} width
   * @param {import("./bars.js").Palette} colours
   */
  update(place, part, nodes, width, colours) {
    this.part = part;
    set(this.name, `${place.topic}-${place.number}`);
    if (!part) return;
    const leader = part[0] < 0 ? "no leader" : `leader ${part[0]}`;
    set(this.about, `${leader}, leader epoch ${part[1]}, ISR ${isrText(part, nodes)}`);
    const state = [
      part[0] < 0 && "✗ no leader",
      part[4].length < part[3].length && `✗ ${part[4].length} of ${part[3].length} in ISR`,
      part[5].length + part[6].length > 0 && "⇄ reassignment",
    ];
    set(this.state, state.filter(Boolean).join(", "));
    paint(this.canvas, part, width, colours);
  }
}

/** @param {HTMLElement} place @param {string} text */
function set(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

export class PartitionList {
  /**
   * @param {Store} store
   * @param {(place: Place) => void} chosen
   */
  constructor(store, chosen) {
    this._store = store;
    this._chosen = chosen;
    /** @type {Place[]} */
    this._places = [];
    /** @type {Map<number, Row>} */
    this._rows = new Map();
    this._text = "";
    this._which = "all";
    this._replicas = 0;
    this._colours = palette();
    this.element = element("div", { class: "partitions" });
    this.count = element("span", { class: "dim", role: "status" });
    this._list = this._made(1);
    // Kept, because reading it between changes of the page would lay the page out each time.
    this._width = 600;
    this._resized = new ResizeObserver(() => {
      this._width = Math.max(200, this.element.clientWidth - 40);
      this._refresh(true);
    });
    this._resized.observe(this.element);
    this._dark = matchMedia("(prefers-color-scheme: dark)");
    this._theme = () => {
      this._colours = palette();
      this._refresh(true);
    };
    this._dark.addEventListener("change", this._theme);
    this._ends = store.listen((changes) => this._changed(changes));
    this._rebuild();
  }

  close() {
    this._ends();
    this._resized.disconnect();
    this._dark.removeEventListener("change", this._theme);
  }

  /**
   * Show the partitions whose names contain the text.
   * @param {string} text
   * @param {string} which a key of CHOICES
   */
  filter(text, which) {
    this._text = text.toLowerCase();
    this._which = which;
    this._list.element.scrollTop = 0;
    this._rebuild();
  }

  /** @param {import("./store.js").Changes} changes */
  _changed(changes) {
    if (changes.full || changes.topics || (changes.parts && this._which !== "all")) this._rebuild();
    else if (changes.parts || changes.nodes) this._refresh(changes.nodes);
  }

  _rebuild() {
    const topics = this._store.state?.topics ?? {};
    const has = /** @type {typeof CHOICES["all"]} */ (CHOICES[this._which]).has;
    const chosen = this._places[this._list.current];
    this._places = [];
    let [replicas, all] = [1, 0];
    const names = Object.keys(topics).sort((one, other) => rank(topics, one) - rank(topics, other) || one.localeCompare(other));
    for (const topic of names) {
      topics[topic]?.partitions.forEach((part, number) => {
        if (!part) return;
        all += 1;
        replicas = Math.max(replicas, part[3].length);
        if (has(part) && (!this._text || `${topic}-${number}`.toLowerCase().includes(this._text))) this._places.push({ topic, number });
      });
    }
    if (replicas !== this._replicas) this._list = this._made(replicas);
    this._rows.clear();
    this._list.current = chosen ? this._places.findIndex((one) => one.topic === chosen.topic && one.number === chosen.number) : -1;
    this._list.show(this._places.length);
    set(this.count, `${this._places.length.toLocaleString("en")} of ${all.toLocaleString("en")} partitions`);
  }

  /** @param {number} replicas */
  _made(replicas) {
    this._replicas = replicas;
    const list = new LongList({
      label: "Partitions",
      height: HEAD + GAP + replicas * LINE,
      row: (index) => this._row(index).element,
      chosen: (index) => {
        this._list.choose(index);
        const place = this._places[index];
        if (place) this._chosen(place);
      },
    });
    this.element.replaceChildren(list.element);
    return list;
  }

  /** @param {number} index */
  _row(index) {
    const row = this._rows.get(index) ?? this._spare() ?? new Row();
    this._rows.set(index, row);
    this._update(index, row, false);
    return row;
  }

  /** A row that left the view, when there are many. */
  _spare() {
    if (this._rows.size < KEPT_ROWS) return null;
    for (const [index, row] of this._rows) {
      if (row.element.isConnected) continue;
      this._rows.delete(index);
      row.part = undefined;
      return row;
    }
    return null;
  }

  /** @param {number} index @param {Row} row @param {boolean} always */
  _update(index, row, always) {
    const state = this._store.state;
    const place = this._places[index];
    if (!state || !place) return;
    const part = state.topics[place.topic]?.partitions[place.number] ?? null;
    if (!always && row.part === part) return;
    row.update(place, part, state.nodes, this._width, this._colours);
  }

  /** @param {boolean} always paint rows in view although their data is the same */
  _refresh(always) {
    for (const [index, row] of this._rows) if (row.element.isConnected) this._update(index, row, always);
  }
}

/** Internal topics come last. @param {Record<string, import("./types.js").Topic>} topics @param {string} name */
function rank(topics, name) {
  return topics[name]?.internal ? 1 : 0;
}
