// The first view: nodes, charts, all partitions, the chosen partition, and the events.

import { Charts } from "./charts.js";
import { Feed, KINDS } from "./feed.js";
import { useChanges } from "./hooks.js";
import { Nodes } from "./nodes.js";
import { PartitionDetails } from "./partition.js";
import { CHOICES, PartitionList } from "./partitions.js";
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */

/** @param {{store: Store}} properties */
export function Overview({ store }) {
  return html`
    <h2 class="hidden-text">Overview</h2>
    <${Nodes} store=${store} />
    <${Totals} store=${store} />
    <${Mounted} make=${() => new Charts(store)} />
    <${Partitions} store=${store} />
  `;
}

/** @param {{store: Store}} properties */
function Totals({ store }) {
  useChanges(store, ["parts", "topics"]);
  const { count, behind, leaderless } = store.totals;
  return html`<p class="totals">
    ${count.toLocaleString("en")} partitions:
    ${" "}<span class=${behind ? "bad" : "good"}>${behind ? `✗ ${behind.toLocaleString("en")} not all in ISR` : "✓ all in ISR"}</span>,
    ${" "}<span class=${leaderless ? "bad" : "good"}>${leaderless ? `✗ ${leaderless.toLocaleString("en")} without a leader` : "✓ all have a leader"}</span>
  </p>`;
}

/**
 * An object with an element of its own, such as a long list: made once, closed when the view goes.
 * @param {{make: () => {element: HTMLElement, close: () => void}}} properties
 */
function Mounted({ make }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const made = make();
    place.current?.replaceChildren(made.element);
    return () => made.close();
  }, []);
  return html`<div ref=${place}></div>`;
}

/** @param {{store: Store}} properties */
function Partitions({ store }) {
  const [chosen, setChosen] = useState(/** @type {import("./partitions.js").Place | null} */ (null));
  const list = useRef(/** @type {PartitionList | null} */ (null));
  const feed = useRef(/** @type {Feed | null} */ (null));
  const [count, setCount] = useState(/** @type {HTMLElement | null} */ (null));
  const filters = useRef({ text: "", which: "all" });
  /** @param {{text?: string, which?: string}} change */
  const filter = (change) => {
    filters.current = { ...filters.current, ...change };
    list.current?.filter(filters.current.text, filters.current.which);
  };
  const makeList = () => {
    list.current = new PartitionList(store, setChosen);
    setCount(list.current.count);
    return list.current;
  };
  return html`<div class="split">
    <section aria-labelledby="partitions-title">
      <div class="bar">
        <h3 id="partitions-title">Partitions</h3>
        <label>Name <input data-filter type="search" onInput=${(/** @type {any} */ event) => filter({ text: event.target.value })} /></label>
        <label>Show <select onChange=${(/** @type {any} */ event) => filter({ which: event.target.value })}>
          ${Object.entries(CHOICES).map(([key, { title }]) => html`<option key=${key} value=${key}>${title}</option>`)}
        </select></label>
        <${Placed} element=${count} />
      </div>
      <${Mounted} make=${makeList} />
      <p class="legend dim">Bars: offsets of each replica on one axis, a colour and a label per leader epoch; dashed: only in the tier; upright line:
        high watermark; ★ leader; ✗ not in the ISR. <code>1@12</code> is broker 1 with broker epoch 12.</p>
    </section>
    <div>
      ${chosen && html`<${PartitionDetails} key=${`${chosen.topic}-${chosen.number}`} store=${store} topic=${chosen.topic} number=${chosen.number}
        close=${() => setChosen(null)} />`}
      <section aria-labelledby="events-title">
        <div class="bar"><h3 id="events-title">Events</h3>
          <label>Show <select onChange=${(/** @type {any} */ event) => feed.current?.filter(event.target.value)}>
            ${Object.keys(KINDS).map((kind) => html`<option key=${kind}>${kind}</option>`)}
          </select></label></div>
        <${Mounted} make=${() => (feed.current = new Feed(store))} />
      </section>
    </div>
  </div>`;
}

/** @param {{element: HTMLElement | null}} properties */
function Placed({ element }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => void (element && place.current?.replaceChildren(element)), [element]);
  return html`<span ref=${place}></span>`;
}
