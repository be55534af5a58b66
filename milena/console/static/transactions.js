// Transactions: the ids of all coordinators, the partitions that open transactions hold back, and what ends them.

import { get, post, query } from "./requests.js";
import { act, useAnswer, useChanges, useClock } from "./hooks.js";
import { html, useState } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").TransactionalId} TransactionalId */
/** @typedef {TransactionalId & {transactional_id: string, coordinator: number}} Row */
/** @typedef {{producer_id: number, producer_epoch: number, coordinator_epoch: number, last_sequence: number, last_timestamp: number, start_offset: number | null}} Producer */
/** @typedef {{topic: string, partition: number, stable: number, mark: number, producer: number, start: number, last: number}} HeldBack */

/** The most rows of a table. */
const MOST = 200;
const ENDED = ["Empty", "CompleteCommit", "CompleteAbort"];
const STATES = ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence", ...ENDED, "Dead"];
const SIGNS = { Ongoing: "▶", PrepareCommit: "◌", PrepareAbort: "◌", PrepareEpochFence: "◌", CompleteCommit: "✓", CompleteAbort: "✗" };
/** Minutes without a record after which a transaction may be hanging, as in `milena transactions find-hanging`. */
const MINUTES = 15;

/** What the buttons do. Nothing undoes them. */
const ENDS = {
  terminate: { title: "Force-terminate", about: "The coordinator aborts the open transaction of this id and fences its producer. This cannot be undone." },
  abort: { title: "Abort", about: "An abort marker is written to this partition. Only for a hanging transaction, which no coordinator will end. This cannot be undone." },
};

/** @param {{store: Store, parameters: Record<string, string>}} properties */
export function TransactionsView({ store, parameters }) {
  useChanges(store, ["transactions", "parts", "topics"]);
  const state = /** @type {State} */ (store.state);
  return html`<h2>Transactions</h2>
    <${Ids} store=${store} chosen=${parameters.id} />
    ${parameters.id !== undefined && html`<${Details} key=${parameters.id} store=${store} id=${parameters.id} />`}
    <${HeldBackPartitions} store=${store} state=${state} />`;
}

/** All rows that the state has, unended transactions first, oldest first. @param {State} state @returns {Row[]} */
function rowsOf(state) {
  const rows = Object.entries(state.transactions).flatMap(([node, { ids }]) => {
    const coordinator = state.nodes[node]?.id ?? -1;
    return Object.entries(ids).map(([name, row]) => ({ ...row, transactional_id: name, coordinator }));
  });
  const ended = (/** @type {Row} */ row) => Number(ENDED.includes(row.state));
  const time = (/** @type {Row} */ row) => (ended(row) ? -(row.update_ms ?? 0) : (row.start_ms ?? 0));
  return rows.sort((one, other) => ended(one) - ended(other) || time(one) - time(other));
}

/** The numbers of ids by state, and of all ids; null: not known. @param {State} state */
function countsOf(state) {
  /** @type {Record<string, number>} */
  const counts = {};
  let total = /** @type {number | null} */ (0);
  let loading = 0;
  for (const block of Object.values(state.transactions)) {
    for (const [name, count] of Object.entries(block.counts)) counts[name] = (counts[name] ?? 0) + count;
    total = total === null || block.total === null ? null : total + block.total;
    loading += block.loading;
  }
  return { counts, total, loading };
}

/** @param {{store: Store, chosen: string | undefined}} properties */
function Ids({ store, chosen }) {
  const state = /** @type {State} */ (store.state);
  const [wanted, setWanted] = useState({ text: "", state: "" });
  // A search that was made: the state has a part of the ids only.
  const [search, setSearch] = useState(/** @type {{text: string, state: string} | null} */ (null));
  const { answer, error, again } = useAnswer(() => search && get(query("/api/transactions", { ...search, limit: MOST })), [search]);
  const { counts, total, loading } = countsOf(state);
  const listed = rowsOf(state);
  const matching = listed.filter((row) => row.transactional_id.includes(wanted.text) && (wanted.state === "" || row.state === wanted.state));
  const rows = search === null ? matching : /** @type {Row[]} */ (answer?.ids ?? []);
  const change = (/** @type {object} */ changed) => {
    setWanted({ ...wanted, ...changed });
    setSearch(null);
  };
  const find = (/** @type {any} */ event) => {
    event.preventDefault();
    setSearch({ ...wanted });
    again();
  };
  const found = search === null ? `${rows.length} of ${total === null ? "the open" : total.toLocaleString("en")} ids${loading ? `, ${loading} ${loading === 1 ? "partition is" : "partitions are"} loading` : ""}` : answer ? `${rows.length} of ${answer.total.toLocaleString("en")} ids found` : "searching";
  return html`<p class="counts" role="status" aria-label="Transactional ids by state">${STATES.filter((name) => counts[name]).map((name) => html`<span key=${name}>${signed(name)} <b>${counts[name]?.toLocaleString("en")}</b></span> `)}</p>
    <form class="bar" role="search" onSubmit=${find}>
      <label>Id <input data-filter type="search" value=${wanted.text} onInput=${(/** @type {any} */ event) => change({ text: event.target.value })} /></label>
      <label>State <select value=${wanted.state} onChange=${(/** @type {any} */ event) => change({ state: event.target.value })}>
        <option value="">all</option>${STATES.slice(0, -1).map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
      <button title="Search all ids of all coordinators, not only those in the list">Search all ids</button>
      ${search && html`<button type="button" onClick=${() => setSearch(null)}>Live list</button>`}
      <span role="status" class=${error ? "bad" : "dim"}>${error ? `✗ ${error}` : found}</span></form>
    ${rows.length === 0 ? html`<p class="panel">${listed.length ? "No id matches." : "There is no transactional id."}</p>` : html`<${Table} store=${store} rows=${rows} chosen=${chosen} />`}`;
}

/** @param {{store: Store, rows: Row[], chosen: string | undefined}} properties */
function Table({ store, rows, chosen }) {
  const now = useClock(store);
  return html`<div class="scroll tall" tabindex="0" role="group" aria-label="Table of transactional ids"><table>
    <caption class="hidden-text">Transactional ids</caption>
    <thead><tr>${["transactional id", "state", "pending", "coordinator", "producer id", "epoch", "open for", "timeout", "partitions"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${rows.slice(0, MOST).map((row) => html`<tr key=${`${row.coordinator} ${row.transactional_id}`}>
      <th scope="row"><a href=${`#/transactions?id=${encodeURIComponent(row.transactional_id)}`} aria-current=${row.transactional_id === chosen ? "true" : null}>${row.transactional_id === chosen ? "▸ " : ""}${row.transactional_id}</a></th>
      <td>${signed(row.state)}</td><td>${row.pending ? html`<span class="warn">◌ ${row.pending}</span>` : "–"}</td><td class="number">${row.coordinator}</td>
      <td class="number">${row.producer_id}</td><td class="number">${row.producer_epoch}</td><td class="number">${age(row, now)}</td>
      <td class="number">${row.timeout_ms === null ? "–" : duration(row.timeout_ms)}</td><td class="number">${row.partitions.toLocaleString("en")}</td></tr>`)}</tbody>
    </table></div>
    ${rows.length > MOST && html`<p class="dim">and ${rows.length - MOST} more</p>`}`;
}

/** A state with its sign. @param {string} state */
const signed = (state) => `${SIGNS[/** @type {keyof typeof SIGNS} */ (state)] ?? "·"} ${state}`;

/** How long the transaction of an id is open. @param {TransactionalId} row @param {number} now */
function age(row, now) {
  if (ENDED.includes(row.state) || row.start_ms === null) return "–";
  const open = now - row.start_ms;
  return row.timeout_ms !== null && open > row.timeout_ms ? html`<span class="warn">${duration(open)}, past its timeout</span>` : duration(open);
}

/** A duration in words: `3 min 5 s`. @param {number} ms */
export function duration(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min${seconds % 60 ? ` ${seconds % 60} s` : ""}`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h${minutes % 60 ? ` ${minutes % 60} min` : ""}`;
  return `${Math.floor(hours / 24).toLocaleString("en")} d`;
}

/** One transactional id, asked again when its state changes. @param {{store: Store, id: string}} properties */
function Details({ store, id }) {
  const state = /** @type {State} */ (store.state);
  const now = useClock(store);
  const live = rowsOf(state).find((row) => row.transactional_id === id);
  const { answer, error, again } = useAnswer(() => get(query("/api/transactions/description", { transactional_id: id })), [id, live?.state, live?.partitions, live?.producer_epoch]);
  const known = /** @type {(Row & {error: string, producers: {topic: string, partition: number, producer: Producer | null}[]}) | null} */ (answer);
  const terminate = async () => {
    await act(`Force-terminate ${id}`, post("/api/transactions/force-terminate", { transactional_id: id }));
    again();
  };
  return html`<section class="panel details" aria-label=${`Transactional id ${id}`}>
    <div class="bar"><h3>${id}</h3>
      <button type="button" title=${ENDS.terminate.about} disabled=${known === null} onClick=${terminate}>${ENDS.terminate.title}<span class="hidden-text"> ${id}</span></button>
      <a href="#/transactions">Close</a></div>
    <p class="dim">${ENDS.terminate.title}: ${ENDS.terminate.about}</p>
    ${error && html`<p class="bad">✗ ${error}</p>`}
    ${known && html`<dl class="facts">
      <dt>State</dt><dd>${signed(known.state)}${live?.pending ? `, ${live.pending} is not committed yet` : ""}</dd>
      <dt>Coordinator</dt><dd>broker ${known.coordinator}</dd>
      <dt>Producer</dt><dd>id ${known.producer_id}, epoch ${known.producer_epoch}</dd>
      <dt>Open for</dt><dd>${age(known, now)}${known.timeout_ms === null ? "" : `, timeout ${duration(known.timeout_ms)}`}</dd>
      <dt>Partitions</dt><dd>${known.partitions.toLocaleString("en")}</dd></dl>
      ${known.error && html`<p class="warn">The producers of the partitions are not known: ${known.error}</p>`}
      ${known.producers.length > 0 && html`<${Producers} state=${state} producers=${known.producers} now=${now} />
        ${known.partitions > known.producers.length && html`<p class="dim">and ${known.partitions - known.producers.length} more partitions</p>`}`}`}
  </section>`;
}

/** What each partition knows of a producer. @param {{state: State, producers: {topic: string, partition: number, producer: Producer | null}[], now: number}} properties */
function Producers({ state, producers, now }) {
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Partitions of the transaction"><table>
    <caption class="hidden-text">Partitions of the transaction</caption>
    <thead><tr>${["partition", "epoch", "begins at", "last sequence", "last record", "coordinator epoch", "last stable", "high watermark"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${producers.map(({ topic, partition, producer }) => {
      const part = state.topics[topic]?.partitions[partition];
      const leader = part?.[8][part[0]];
      const known = producer === null ? [null, null, null] : [producer.producer_epoch, producer.start_offset, producer.last_sequence];
      return html`<tr key=${`${topic}-${partition}`}><th scope="row">${topic}-${partition}</th>
        ${known.map((value, at) => html`<td key=${at} class="number">${value === null ? "–" : value.toLocaleString("en")}</td>`)}
        <td class="number">${producer === null ? "–" : `${duration(now - producer.last_timestamp)} ago`}</td><td class="number">${producer === null || producer.coordinator_epoch < 0 ? "–" : producer.coordinator_epoch}</td>
        <td class="number">${leader?.[4]?.toLocaleString("en") ?? "–"}</td><td class="number">${leader?.[3]?.toLocaleString("en") ?? "–"}</td></tr>`;
    })}</tbody></table></div>`;
}

/** Partitions with an open transaction, the one without a record for the longest time first. @param {State} state @returns {HeldBack[]} */
function heldBack(state) {
  /** @type {HeldBack[]} */
  const found = [];
  for (const [topic, { partitions }] of Object.entries(state.topics)) {
    for (const [partition, part] of partitions.entries()) {
      const leader = part?.[8][part[0]];
      const [producer, start, last] = leader?.[13] ?? [];
      if (!leader || producer === undefined || start === undefined || last === undefined) continue;
      found.push({ topic, partition, stable: leader[4], mark: leader[3], producer, start, last });
    }
  }
  return found.sort((one, other) => one.last - other.last);
}

/** @param {{store: Store, state: State}} properties */
function HeldBackPartitions({ store, state }) {
  const now = useClock(store);
  const [minutes, setMinutes] = useState(MINUTES);
  const held = heldBack(state);
  const old = held.filter((one) => now - one.last > minutes * 60_000);
  // Coordinators are asked when another transaction gets that old, not with each change of the state.
  const { answer, error, again } = useAnswer(() => (old.length ? get(query("/api/transactions/hanging", { minutes })) : null), [minutes, old.length]);
  const hanging = new Set(/** @type {{topic: string, partition: number, start_offset: number}[]} */ (answer?.hanging ?? []).map((one) => `${one.topic}-${one.partition} ${one.start_offset}`));
  const names = new Map(rowsOf(state).map((row) => [row.producer_id, row.transactional_id]));
  return html`<section aria-label="Partitions with open transactions"><div class="bar"><h3>Partitions with open transactions</h3>
      <label>Hanging after <input type="number" min="0" step="any" value=${minutes} onInput=${(/** @type {any} */ event) => setMinutes(Number(event.target.value))} /> minutes without a record</label>
      <button type="button" onClick=${again}>Find hanging</button>
      <span role="status" class=${error ? "bad" : "dim"}>${error ? `✗ ${error}` : `${held.length} partitions, ${hanging.size} hanging${answer?.incomplete ? ` (${answer.incomplete})` : ""}`}</span></div>
    ${held.length > 0 && html`<div class="scroll tall" tabindex="0" role="group" aria-label="Table of partitions with open transactions"><table>
      <caption class="hidden-text">Partitions with open transactions</caption>
      <thead><tr>${["partition", "last stable", "high watermark", "held back", "producer id", "transactional id", "begins at", "last record", "", ""].map((title, at) => html`<th key=${at} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${held.slice(0, MOST).map((one) => heldRow(one, names.get(one.producer), hanging.has(`${one.topic}-${one.partition} ${one.start}`), now, again))}</tbody></table></div>
      ${held.length > MOST && html`<p class="dim">and ${held.length - MOST} more</p>`}
      <p class="legend dim">Consumers with read_committed stop at the last stable offset. A transaction is hanging if no coordinator will end it. ${ENDS.abort.title}: ${ENDS.abort.about}</p>`}
  </section>`;
}

/** @param {HeldBack} one @param {string | undefined} id @param {boolean} hanging @param {number} now @param {() => void} again */
function heldRow(one, id, hanging, now, again) {
  const name = `${one.topic}-${one.partition}`;
  const abort = async () => {
    await act(`Abort the transaction of producer id ${one.producer} in ${name}`, post("/api/transactions/abort", { topic: one.topic, partition: one.partition, start_offset: one.start }));
    again();
  };
  return html`<tr key=${name} class=${hanging ? "bad" : null}><th scope="row"><a href=${`#/records?topic=${encodeURIComponent(one.topic)}&partition=${one.partition}`}>${name}</a></th>
    ${[one.stable, one.mark, Math.max(0, one.mark - one.stable)].map((value, at) => html`<td key=${at} class="number">${value.toLocaleString("en")}</td>`)}
    <td class="number">${one.producer}</td><td>${id === undefined ? "–" : html`<a href=${`#/transactions?id=${encodeURIComponent(id)}`}>${id}</a>`}</td>
    <td class="number">${one.start.toLocaleString("en")}</td><td class="number">${duration(now - one.last)} ago</td>
    <td>${hanging ? "✗ hanging" : ""}</td>
    <td>${hanging && html`<button type="button" title=${ENDS.abort.about} onClick=${abort}>${ENDS.abort.title}<span class="hidden-text"> the transaction in ${name}</span></button>`}</td></tr>`;
}
