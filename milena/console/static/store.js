// The state of the cluster in the browser: the full state, then deltas from the event stream. A delta replaces the
// arrays of the partitions that it names, so a row knows by identity whether it must be drawn again.

import { get, query } from "./requests.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Delta} Delta */
/** @typedef {import("./types.js").Part} Part */
/** @typedef {import("./types.js").Replica} Replica */
/** @typedef {{topics: boolean, nodes: boolean, groups: boolean, rules: boolean, transactions: boolean, parts: boolean, events: number, full: boolean}} Changes */
/** @typedef {{end: number, lag: number, behind: number, leaderless: number, count: number}} Totals */

export const KEPT_EVENTS = 1000;
const LONGEST_RETRY_MS = 5000;

/** @returns {Changes} */
const nothing = () => ({ topics: false, nodes: false, groups: false, rules: false, transactions: false, parts: false, events: 0, full: false });

/**
 * What one partition adds to the totals: records appended, followers' lag, fewer replicas in sync, no leader.
 * @param {Part | null | undefined} part
 * @param {Totals} totals
 * @param {1 | -1} sign
 */
function count(part, totals, sign) {
  if (!part) return;
  const leader = part[8][part[0]];
  totals.count += sign;
  if (part[0] < 0) totals.leaderless += sign;
  if (part[4].length < part[3].length) totals.behind += sign;
  if (!leader) return;
  totals.end += sign * Math.max(0, leader[5]);
  totals.lag += sign * lagOf(part, leader);
}

/**
 * The records by which the followers' logs are shorter than the leader's.
 * @param {Part} part
 * @param {Replica} leader
 */
function lagOf(part, leader) {
  let lag = 0;
  for (const id of part[3]) {
    const replica = part[8][id];
    if (replica && replica[0] === "F" && replica[5] < leader[5]) lag += leader[5] - Math.max(0, replica[5]);
  }
  return lag;
}

export class Store {
  constructor() {
    /** @type {State | null} */
    this.state = null;
    /** @type {Totals} */
    this.totals = { end: 0, lag: 0, behind: 0, leaderless: 0, count: 0 };
    /** "loading", "live", "lost" (no connection), "login" (no cookie) */
    this.connection = "loading";
    this.resets = 0;
    /** @type {Set<(changes: Changes) => void>} */
    this._listeners = new Set();
    this._changes = nothing();
    this._frame = 0;
    this._retry = 500;
    /** Milliseconds by which the server's clock is ahead of the browser's. */
    this._ahead = 0;
    /** @type {EventSource | null} */
    this._source = null;
  }

  /**
   * Call a function once per animation frame in which something changed.
   * @param {(changes: Changes) => void} listener
   * @returns {() => void} ends it
   */
  listen(listener) {
    this._listeners.add(listener);
    return () => void this._listeners.delete(listener);
  }

  /** The server's time in ms. */
  now() {
    return Date.now() + this._ahead;
  }

  async start() {
    this._source?.close();
    this._source = null;
    try {
      this.take(await get("/api/state"));
    } catch (error) {
      const login = /** @type {import("./requests.js").ApiError} */ (error).status === 401;
      this._connected(login ? "login" : "lost");
      if (!login) this._again();
      return;
    }
    this._follow();
  }

  /**
   * Replace everything by a full state.
   * @param {State} state
   */
  take(state) {
    this.state = state;
    this._ahead = state.time_ms - Date.now();
    this.totals = { end: 0, lag: 0, behind: 0, leaderless: 0, count: 0 };
    for (const topic of Object.values(state.topics)) {
      for (const part of topic.partitions) count(part, this.totals, 1);
    }
    const every = { topics: true, nodes: true, groups: true, rules: true, transactions: true, parts: true };
    this._changed({ ...every, events: state.events.length, full: true });
  }

  /**
   * Apply a delta; one that the state already contains is ignored.
   * @param {Delta} delta
   */
  apply(delta) {
    const state = this.state;
    if (!state || delta.seq <= state.seq) return;
    state.seq = delta.seq;
    state.time_ms = delta.time_ms;
    this._ahead = delta.time_ms - Date.now();
    state.interval_ms = delta.interval_ms;
    replaceKeys(state.nodes, delta.nodes);
    replaceKeys(state.groups, delta.groups);
    for (const [node, rules] of Object.entries(delta.rules ?? {})) {
      if (rules.length) state.rules[node] = rules;
      else delete state.rules[node];
    }
    for (const [node, block] of Object.entries(delta.transactions ?? {})) this._applyTransactions(node, block);
    this._applyTopics(delta.topics);
    for (const [topic, number, head, replicas] of delta.parts ?? []) this._applyPart(topic, number, head, replicas);
    const events = delta.events ?? [];
    if (events.length) state.events = [...state.events, ...events].slice(-KEPT_EVENTS);
    this._changed({
      topics: Boolean(delta.topics),
      nodes: Boolean(delta.nodes),
      groups: Boolean(delta.groups),
      rules: Boolean(delta.rules),
      transactions: Boolean(delta.transactions),
      parts: Boolean(delta.parts),
      events: events.length,
      full: false,
    });
  }

  /** @param {string} node @param {import("./types.js").Coordinated<import("./types.js").TransactionalId | null>} block */
  _applyTransactions(node, block) {
    const known = /** @type {State} */ (this.state).transactions;
    const ids = { ...known[node]?.ids };
    replaceKeys(ids, block.ids);
    if (Object.keys(block.counts).length || block.loading) known[node] = { ...block, ids };
    else delete known[node];
  }

  /** @param {Delta["topics"]} topics */
  _applyTopics(topics) {
    const known = /** @type {State} */ (this.state).topics;
    for (const [name, change] of Object.entries(topics ?? {})) {
      const former = known[name]?.partitions ?? [];
      if (change === null || known[name]?.id !== change.id) for (const part of former) count(part, this.totals, -1);
      if (change === null) {
        delete known[name];
        continue;
      }
      const kept = known[name]?.id === change.id ? former : [];
      const partitions = Array.from({ length: change.count }, (_, number) => kept[number] ?? null);
      known[name] = { id: change.id, internal: change.internal, partitions };
    }
  }

  /**
   * @param {string} topic
   * @param {number} number
   * @param {any[] | null} head
   * @param {Record<string, Replica | null>} changed
   */
  _applyPart(topic, number, head, changed) {
    const partitions = /** @type {State} */ (this.state).topics[topic]?.partitions;
    const former = partitions?.[number];
    if (!partitions || (!former && !head)) return;
    count(former, this.totals, -1);
    const replicas = former ? { ...former[8] } : {};
    replaceKeys(replicas, changed);
    const from = head ? [...head.slice(0, 8), replicas, head[8]] : [.../** @type {Part} */ (former)];
    from[8] = replicas;
    const part = /** @type {Part} */ (from);
    partitions[number] = part;
    count(part, this.totals, 1);
  }

  _follow() {
    const { stream, seq } = /** @type {State} */ (this.state);
    const source = new EventSource(query("/api/events", { stream, seq }));
    this._source = source;
    source.addEventListener("delta", (event) => {
      this._connected("live");
      this.apply(JSON.parse(event.data));
    });
    source.addEventListener("reset", () => {
      this.resets += 1;
      void this.start();
    });
    // The server has as many listeners as it takes.
    source.addEventListener("refused", () => {
      this._connected("lost");
      this._retry = LONGEST_RETRY_MS;
      this._again();
    });
    source.addEventListener("open", () => {
      this._retry = 500;
      this._connected("live");
    });
    source.addEventListener("error", () => {
      this._connected("lost");
      if (source.readyState === EventSource.CLOSED) this._again();
    });
  }

  _again() {
    this._source?.close();
    this._source = null;
    setTimeout(() => void this.start(), this._retry);
    this._retry = Math.min(this._retry * 2, LONGEST_RETRY_MS);
  }

  /** @param {"live" | "lost" | "login"} connection */
  _connected(connection) {
    if (this.connection === connection) return;
    this.connection = connection;
    this._changed({ ...nothing(), nodes: true });
  }

  /** @param {Changes} changes */
  _changed(changes) {
    const all = this._changes;
    all.topics ||= changes.topics;
    all.nodes ||= changes.nodes;
    all.groups ||= changes.groups;
    all.rules ||= changes.rules;
    all.transactions ||= changes.transactions;
    all.parts ||= changes.parts;
    all.full ||= changes.full;
    all.events += changes.events;
    this._frame ||= requestAnimationFrame(() => {
      this._frame = 0;
      this._changes = nothing();
      for (const listener of [...this._listeners]) listener(all);
    });
  }
}

/**
 * Give a mapping the values of another; null deletes.
 * @template T
 * @param {Record<string, T>} mapping
 * @param {Record<string, T | null> | undefined} changes
 */
function replaceKeys(mapping, changes) {
  for (const [key, value] of Object.entries(changes ?? {})) {
    if (value === null) delete mapping[key];
    else mapping[key] = value;
  }
}
