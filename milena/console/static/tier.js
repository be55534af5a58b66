// Segments of a partition in the tier, with their lineage: the leader epochs of each segment beside those of the leader.

import { get, query } from "./requests.js";
import { epochsOf } from "./bars.js";
import { chosenPlace, PlaceForm } from "./choice.js";
import { drawLogs } from "./draw.js";
import { useAnswer, useChanges } from "./hooks.js";
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Part} Part */

/**
 * @typedef {object} Segment
 * @property {string} id
 * @property {number} start_offset
 * @property {number} end_offset
 * @property {[number, number][] | Record<string, number>} epochs
 * @property {string} state
 * @property {number} size
 * @property {number} broker
 * @property {boolean | null} on_lineage null: the broker has no log to compare with
 */

const PAGE = 100;

/** @param {{store: Store, parameters: Record<string, string>}} properties */
export function TierView({ store, parameters }) {
  useChanges(store, ["topics", "parts"]);
  const state = /** @type {State} */ (store.state);
  const { topics, topic, partition } = chosenPlace(state, parameters, (name) => isTiered(state, name));
  if (topic === undefined || !topics.includes(topic)) {
    return html`<h2>Tier</h2><p class="panel">${topic && parameters.topic ? `${topic} has no records in the tier.` : "No topic has records in the tier."}
      ${" "}A topic with <code>remote.storage.enable=true</code> has, once a segment is closed and copied.</p>
      ${topics.length > 0 && html`<p>Topics in the tier: ${topics.map((name) => html`<a key=${name} href=${`#/tier?topic=${encodeURIComponent(name)}`}>${name}</a> `)}</p>`}`;
  }
  return html`<h2>Tier</h2>
    <div class="bar"><${PlaceForm} state=${state} view="tier" topics=${topics} topic=${topic} partition=${partition ?? 0} every=${false} /></div>
    <${Segments} key=${`${topic}-${partition}`} store=${store} topic=${topic} number=${partition ?? 0} />`;
}

/** @param {State} state @param {string} topic */
function isTiered(state, topic) {
  return (state.topics[topic]?.partitions ?? []).some((part) => part !== null && Object.values(part[8]).some((replica) => replica[6] >= 0));
}

/** @param {{store: Store, topic: string, number: number}} properties */
function Segments({ store, topic, number }) {
  useChanges(store, ["parts"]);
  const [after, setAfter] = useState(0);
  const part = store.state?.topics[topic]?.partitions[number];
  const leader = part?.[8][part[0]];
  // Asked again when the tier's highest offset or the log start moves.
  const { answer, error, again } = useAnswer(
    () => get(query(`/api/topics/${encodeURIComponent(topic)}/segments`, { partition: number, after, limit: PAGE })),
    [topic, number, after, leader?.[6], leader?.[1]],
  );
  const segments = /** @type {Segment[]} */ (answer?.segments ?? []);
  const off = segments.filter((segment) => segment.on_lineage === false).length;
  return html`
    ${error && html`<p class="bad">✗ ${error}</p>`}
    ${part && html`<p>Leader epochs of the leader, broker ${part[0]}: <span class="code">${leader ? epochText(epochsOf(leader)) : "unknown"}</span></p>`}
    <div class="bar">
      <button type="button" onClick=${again}>Read again</button>
      <button type="button" disabled=${after === 0} onClick=${() => setAfter(0)}>First ${PAGE}</button>
      <button type="button" disabled=${!answer?.next} onClick=${() => setAfter(answer.next)}>Next ${PAGE}</button>
      <span role="status">${segments.length} segments${off > 0 ? html`, <span class="bad">✗ ${off} not on the leader's lineage</span>` : segments.length > 0 ? ", all on the leader's lineage" : ""}</span>
    </div>
    ${part && segments.length > 0 && html`<${Drawing} part=${part} segments=${segments} name=${`${topic}-${number}`} />`}
    ${segments.length > 0 && html`<${Table} segments=${segments} />`}`;
}

/** @param {Segment} segment @returns {[number, number][]} */
function segmentEpochs({ epochs }) {
  return Array.isArray(epochs) ? epochs : Object.entries(epochs).map(([epoch, start]) => [Number(epoch), start]);
}

/** @param {[number, number][]} epochs */
function epochText(epochs) {
  return epochs.map(([epoch, start]) => `LE-${epoch} from ${start}`).join(", ") || "none";
}

/** @param {Segment} segment */
function lineage({ on_lineage: on }) {
  return on === null ? "unknown" : on ? "✓ the leader's" : "✗ another";
}

/** @param {{part: Part, segments: Segment[], name: string}} properties */
function Drawing({ part, segments, name }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const leader = part[8][part[0]];
    /** @type {import("./draw.js").Log[]} */
    const logs = segments.map((segment) => ({
      name: `${segment.on_lineage === false ? "✗ " : ""}${segment.id.slice(0, 8)}`,
      about: segment.on_lineage === false ? "not on the lineage" : segment.state.replaceAll("_", " ").toLowerCase(),
      kind: "remote",
      start: segment.start_offset,
      end: segment.end_offset + 1,
      epochs: segmentEpochs(segment),
      stopped: segment.on_lineage === false,
    }));
    if (leader) {
      const local = Math.max(leader[2], leader[1], 0);
      logs.unshift({ name: `broker ${part[0]}`, about: "leader", kind: "local", start: leader[1], localStart: local, end: leader[5], epochs: epochsOf(leader), marks: [{ name: "high watermark", offset: leader[3] }] });
    }
    place.current?.replaceChildren(drawLogs(logs, { label: `Segments of ${name} by offset`, width: Math.max(700, place.current.clientWidth - 10) }));
  }, [part, segments]);
  return html`<div class="scroll segments" ref=${place} tabindex="0" role="group" aria-label=${`Segments of ${name}`}></div>`;
}

/** @param {{segments: Segment[]}} properties */
function Table({ segments }) {
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Table of segments"><table>
    <caption class="hidden-text">Segments</caption>
    <thead><tr>${["segment", "offsets", "leader epochs", "lineage", "state", "bytes", "copied by broker"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${segments.map((segment) => html`<tr key=${segment.id}>
      <th scope="row" class="code">${segment.id}</th><td class="number">${segment.start_offset} to ${segment.end_offset}</td>
      <td class="code">${epochText(segmentEpochs(segment))}</td>
      <td class=${segment.on_lineage === false ? "bad" : ""}>${lineage(segment)}</td>
      <td>${segment.state.replaceAll("_", " ").toLowerCase()}</td><td class="number">${segment.size.toLocaleString("en")}</td><td class="number">${segment.broker}</td>
    </tr>`)}</tbody></table></div>`;
}
