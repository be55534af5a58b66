// One partition in full: its state, its replicas as a drawing and as a table, and elections.

import { post } from "./requests.js";
import { epochsOf, lagOf, stateOf } from "./bars.js";
import { drawLogs } from "./draw.js";
import { act, useChanges } from "./hooks.js";
import { isrText } from "./partitions.js";
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").Part} Part */

/**
 * The replicas of a partition for draw.js.
 * @param {Part} part
 * @returns {import("./draw.js").Log[]}
 */
function logsOf(part) {
  return part[3].flatMap((id) => {
    const replica = part[8][id];
    if (!replica || replica[5] < 0) return [];
    const [, start, local, mark, stable, end] = replica;
    const marks = [["log start", start], ["local log start", local > start ? local : -1], ["last stable offset", stable < mark ? stable : -1], ["high watermark", mark]];
    return [{
      name: `broker ${id}`,
      about: stateOf(part, id),
      kind: /** @type {"local"} */ ("local"),
      start,
      end,
      localStart: local,
      epochs: epochsOf(replica),
      marks: marks.filter(([, offset]) => Number(offset) >= 0).map(([name, offset]) => ({ name: String(name), offset: Number(offset) })),
    }];
  });
}

/** @param {{store: Store, topic: string, number: number, close: () => void}} properties */
export function PartitionDetails({ store, topic, number, close }) {
  useChanges(store, ["parts", "nodes", "topics"]);
  const part = store.state?.topics[topic]?.partitions[number];
  const name = `${topic}-${number}`;
  return html`<section class="panel details" aria-label=${`Partition ${name}`}>
    <div class="bar"><h3>${name}</h3>
      <a href=${`#/records?topic=${encodeURIComponent(topic)}&partition=${number}`}>Records</a>
      <a href=${`#/tier?topic=${encodeURIComponent(topic)}&partition=${number}`}>Tier</a>
      <button type="button" onClick=${close}>Close</button></div>
    ${part ? html`<${Facts} store=${store} part=${part} />
      <${Drawing} part=${part} name=${name} />
      <${Replicas} part=${part} />
      <${Elections} topic=${topic} number=${number} part=${part} />` : html`<p>This partition does not exist any more.</p>`}
  </section>`;
}

/** @param {{store: Store, part: Part}} properties */
function Facts({ store, part }) {
  const proposal = part[8][part[0]]?.[12] ?? [];
  const [producer, start] = part[8][part[0]]?.[13] ?? [];
  const others = [["adding", part[5]], ["removing", part[6]], ["ELR", part[7]], ["ISR proposed by the leader", proposal]];
  return html`<dl class="facts">
    <dt>Leader</dt><dd>${part[0] < 0 ? html`<span class="bad">✗ none</span>` : part[0]}, leader epoch ${part[1]}, partition epoch ${part[2]}</dd>
    <dt>ISR</dt><dd class="code">${isrText(part, store.state?.nodes ?? {})}</dd>
    <dt>Replicas</dt><dd class="code">${part[3].join(" ")}</dd>
    ${producer !== undefined && html`<dt>Open transaction</dt><dd>since offset ${start?.toLocaleString("en")}, producer id ${producer}: <a href="#/transactions">Transactions</a></dd>`}
    ${others.filter(([, ids]) => ids.length).map(([name, ids]) => html`<dt key=${name}>${name}</dt><dd class="code">${/** @type {number[]} */ (ids).join(" ")}</dd>`)}
  </dl>`;
}

/** @param {{part: Part, name: string}} properties */
function Drawing({ part, name }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const width = Math.max(place.current?.clientWidth ?? 0, 760);
    place.current?.replaceChildren(drawLogs(logsOf(part), { label: `Logs of ${name} by offset`, width }));
  }, [part]);
  return html`<div class="scroll" ref=${place} tabindex="0" role="group" aria-label=${`Logs of ${name}`}></div>`;
}

/** @param {{part: Part}} properties */
function Replicas({ part }) {
  const seen = part[8][part[0]]?.[11] ?? [];
  /** The broker epoch that the leader saw in the fetches of a follower. @param {number} id */
  const seenEpoch = (id) => {
    for (let at = 0; at < seen.length; at += 3) if (seen[at] === id) return seen[at + 2];
    return null;
  };
  /** @param {number | null | undefined} value */
  const shown = (value) => (value === null || value === undefined || value < 0 ? "–" : value.toLocaleString("en"));
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Table of replicas"><table>
    <caption class="hidden-text">Replicas</caption>
    <thead><tr>${["broker", "state", "start", "local start", "last stable", "high watermark", "end", "behind", "in tier to", "fetch epoch", "leader epochs"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${part[3].map((id) => {
      const replica = part[8][id];
      return html`<tr key=${id}><th scope="row">${id}</th><td>${stateOf(part, id)}</td>
        ${[replica?.[1], replica?.[2], replica?.[4], replica?.[3], replica?.[5], lagOf(part, id), replica?.[6], seenEpoch(id)].map((value, at) => html`<td key=${at} class="number">${shown(value)}</td>`)}
        <td class="code">${replica ? epochsOf(replica).map(([epoch, start]) => `LE-${epoch} from ${start}`).join(", ") : "–"}</td></tr>`;
    })}</tbody></table></div>`;
}

/** Words for the elections and the reassignment of a partition: a title, what it does, and what undoes it. */
export const MOVES = {
  preferred: { title: "Elect preferred", about: "The first replica in the list becomes leader, if it is in the ISR.", undo: "Another election, after a reassignment in another order." },
  unclean: { title: "Elect unclean", about: "If no replica of the ISR lives, another one becomes leader; the records that it lacks are lost.", undo: "Nothing does." },
  reassign: { title: "Reassign", about: "The partition is copied to these brokers, and other replicas are removed.", undo: "Reassign to the former list." },
};

/** @param {keyof typeof MOVES} move */
const spoken = (move) => `${MOVES[move].about} Undo: ${MOVES[move].undo}`;

/**
 * @param {string} topic
 * @param {number} number
 * @param {boolean} unclean
 */
export function elect(topic, number, unclean) {
  return act(`${unclean ? "Unclean" : "Preferred"} election of ${topic}-${number}`, post("/api/elect", { topic, partition: number, unclean }));
}

/** @param {{topic: string, number: number, part: Part, explained?: boolean}} properties `explained`: with what each does on the page */
export function Elections({ topic, number, part, explained = false }) {
  const [replicas, setReplicas] = useState(part[3].join(" "));
  const reassign = (/** @type {any} */ event) => {
    event.preventDefault();
    const ids = replicas.trim().split(/[\s,]+/).map(Number);
    void act(`Reassignment of ${topic}-${number} to ${ids.join(" ")}`, post("/api/reassign", { topic, partition: number, replicas: ids }));
  };
  return html`<form class="bar" onSubmit=${reassign}>
      <button type="button" title=${spoken("preferred")} onClick=${() => elect(topic, number, false)}>${MOVES.preferred.title}</button>
      <button type="button" title=${spoken("unclean")} onClick=${() => elect(topic, number, true)}>${MOVES.unclean.title}</button>
      <label>Replicas <input size="10" value=${replicas} onInput=${(/** @type {any} */ event) => setReplicas(event.target.value)} /></label>
      <button title=${spoken("reassign")}>${MOVES.reassign.title}</button>
    </form>
    ${explained && html`<dl class="facts">${Object.values(MOVES).map(({ title, about, undo }) => html`<dt key=${title}>${title}</dt><dd>${about} <span class="dim">Undo: ${undo}</span></dd>`)}</dl>`}`;
}
