// Records of a topic: read from an offset, a time or by key, in the format that the reader chooses; and produce one.

import { get, post, query } from "./requests.js";
import { shown } from "./bytes.js";
import { chosenPlace, PlaceForm } from "./choice.js";
import { clockTime } from "./feed.js";
import { act, useAnswer, useChanges } from "./hooks.js";
import { html, useState } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").State} State */
/** @typedef {{partition: number, offset: number, time_ms: number, key: string | null, value: string | null, headers: [string, string | null][], epoch: number, cut: boolean, control: string | null, transaction: Transaction | null}} TopicRecord */
/** @typedef {{producer_id: number, producer_epoch: number, outcome: "committed" | "aborted" | "open" | "unknown"}} Transaction */
/** @typedef {{by: string, value: string, isolation: string}} Search */

const PAGE = 50;
const ISOLATIONS = { read_uncommitted: "read_uncommitted: all records", read_committed: "read_committed" };
const OUTCOMES = { committed: "✓ committed", aborted: "✗ aborted", open: "▶ open", unknown: "◌ ended, not stable yet" };
const FORMATS = { auto: "automatic", text: "text", json: "JSON", hex: "hex" };

/** @param {{store: Store, parameters: Record<string, string>}} properties */
export function RecordsView({ store, parameters }) {
  useChanges(store, ["topics"]);
  const state = /** @type {State} */ (store.state);
  const { topics, topic, partition } = chosenPlace(state, parameters);
  if (topic === undefined) return html`<h2>Records</h2><${NewTopic} /><p class="panel">There is no topic.</p>`;
  return html`<h2>Records</h2>
    <div class="bar"><${PlaceForm} state=${state} view="records" topics=${topics} topic=${topic} partition=${partition} every=${true} /></div>
    <${Reader} key=${`${topic}-${partition}`} topic=${topic} partition=${partition} />
    <${Producer} key=${topic} topic=${topic} partition=${partition} />
    <${NewTopic} />`;
}

/** The parameters of a request for records. @param {Search} search @param {number | null} partition @param {number | null} from */
function wanted(search, partition, from) {
  const given = search.value.trim();
  const by = search.by === "time" ? { time_ms: given && from === null ? Date.parse(given) : null } : search.by === "key" ? { key: given } : {};
  return { partition, from: from ?? (search.by === "offset" ? given : null), ...by, limit: PAGE, isolation: search.isolation, markers: String(search.by !== "key") };
}

/** @param {{topic: string, partition: number | null}} properties */
function Reader({ topic, partition }) {
  const [search, setSearch] = useState({ by: "offset", value: "", isolation: "read_uncommitted" });
  const [asked, setAsked] = useState(search);
  const [from, setFrom] = useState(/** @type {number | null} */ (null));
  const [format, setFormat] = useState("auto");
  const { answer, error, again } = useAnswer(
    () => get(query(`/api/topics/${encodeURIComponent(topic)}/records`, wanted(asked, partition, from))),
    [topic, partition, asked, from],
  );
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    setFrom(null);
    setAsked({ ...search });
    again();
  };
  const records = /** @type {TopicRecord[]} */ (answer?.records ?? []);
  const next = partition === null ? undefined : answer?.next?.[partition];
  // A part of a partition may have no record to show, if it has only records of aborted transactions or other keys.
  const ended = records.length === 0 && (next ?? 0) >= (answer?.high_watermark?.[/** @type {number} */ (partition)] ?? 0);
  return html`<form class="bar" onSubmit=${submit} role="search">
      <label>Search by <select value=${search.by} onChange=${(/** @type {any} */ event) => setSearch({ ...search, by: event.target.value, value: "" })}>
        <option value="offset">offset</option><option value="time">time</option><option value="key">key</option></select></label>
      ${search.by === "time"
        ? html`<label>From <input key="time" type="datetime-local" step="0.001" value=${search.value} onInput=${(/** @type {any} */ event) => setSearch({ ...search, value: event.target.value })} /></label>`
        : html`<label>${search.by === "key" ? "Key" : "From"} <input key=${search.by} size="14" inputmode=${search.by === "offset" ? "numeric" : "text"} value=${search.value}
            placeholder=${search.by === "offset" ? "the first" : ""} onInput=${(/** @type {any} */ event) => setSearch({ ...search, value: event.target.value })} /></label>`}
      <label>Isolation <select value=${search.isolation} onChange=${(/** @type {any} */ event) => setSearch({ ...search, isolation: event.target.value })}>
        ${Object.entries(ISOLATIONS).map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select></label>
      <button>Read</button>
      <button type="button" disabled=${next === undefined || ended} onClick=${() => setFrom(next)}>Next ${PAGE}</button>
      <label>Format <select value=${format} onChange=${(/** @type {any} */ event) => setFormat(event.target.value)}>
        ${Object.entries(FORMATS).map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}</select></label>
      <span role="status" class=${error ? "bad" : "dim"}>${error ? `✗ ${error}` : answer ? `${records.length} records` : "reading"}</span>
    </form>
    <${Table} records=${records} format=${format} />`;
}

/** @param {{records: TopicRecord[], format: string}} properties */
function Table({ records, format }) {
  if (records.length === 0) return null;
  const inTransactions = records.some((record) => record.transaction);
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Table of records"><table class="record">
    <caption class="hidden-text">Records</caption>
    <thead><tr>${["partition", "offset", "time (UTC)", "epoch", ...(inTransactions ? ["transaction"] : []), "key", "value", "headers"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${records.map((record) => html`<tr key=${`${record.partition}-${record.offset}`} class=${record.control ? "unchecked" : null}>
      <td class="number">${record.partition}</td><th scope="row" class="number">${record.offset}</th>
      <td title=${new Date(record.time_ms).toISOString()}>${clockTime(record.time_ms)}</td><td class="number">${record.epoch}</td>
      ${inTransactions && html`<td>${outcome(record)}</td>`}
      <td class="code">${record.control ? "" : shown(record.key, format)}</td>
      <td class="code">${record.control ? `${record.control} marker` : shown(record.value, format)}${record.cut && html` <span class="warn">(cut)</span>`}</td>
      <td class="code">${record.headers.map(([name, value]) => `${name}: ${shown(value, format)}`).join("\n")}</td>
    </tr>`)}</tbody></table></div>`;
}

/** The outcome of the transaction of a record. @param {TopicRecord} record */
function outcome({ control, transaction }) {
  if (transaction === null) return "–";
  const { outcome: how, producer_id: id, producer_epoch: epoch } = transaction;
  const bad = how === "aborted" ? "bad" : how === "committed" ? "dim" : "warn";
  return html`${!control && html`<span class=${bad}>${OUTCOMES[how]}</span> `}<span class="dim">producer ${id}, epoch ${epoch}</span>`;
}

/** Headers that were typed, one `name: value` a line. @param {string} text @returns {[string, string][]} */
function headersIn(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const at = line.indexOf(":");
    return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  });
}

/** @param {{topic: string, partition: number | null}} properties */
function Producer({ topic, partition }) {
  const produce = async (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const key = String(form.get("key"));
    const body = { partition, key: key === "" ? null : key, value: String(form.get("value")), headers: headersIn(String(form.get("headers"))) };
    const sent = await act(`Produce to ${topic}`, post(`/api/topics/${encodeURIComponent(topic)}/records`, body));
    if (sent) event.target.elements.value.value = "";
  };
  return html`<h3>Produce a record to ${topic}${partition === null ? "" : `-${partition}`}</h3>
    <form class="form panel" onSubmit=${produce}>
      <label>Key (empty: null) <input name="key" /></label>
      <label>Value <textarea name="value" rows="2" cols="40"></textarea></label>
      <label>Headers, <span>name: value</span> <textarea name="headers" rows="2" cols="24"></textarea></label>
      <button>Produce</button>
    </form>`;
}

function NewTopic() {
  const create = async (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const name = String(form.get("name"));
    const body = { name, partitions: Number(form.get("partitions")), replication_factor: Number(form.get("replicas")), configs: {} };
    if (await act(`Create topic ${name}`, post("/api/topics", body))) event.target.reset();
  };
  return html`<h3>Create a topic</h3>
    <form class="form panel" onSubmit=${create}>
      <label>Name <input name="name" required /></label>
      <label>Partitions <input name="partitions" type="number" min="1" value="1" /></label>
      <label>Replicas <input name="replicas" type="number" min="1" value="1" /></label>
      <button>Create</button>
    </form>`;
}
