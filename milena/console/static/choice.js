// The choice of a topic and a partition, kept in the address.

import { html } from "./vendor/htm-preact.js";

/** @typedef {import("./types.js").State} State */

/**
 * The address of a view with these parameters.
 * @param {string} view
 * @param {Record<string, string | number>} parameters
 */
export function go(view, parameters) {
  location.hash = `#/${view}?${new URLSearchParams(Object.entries(parameters).map(([name, value]) => [name, String(value)]))}`;
}

/**
 * The topic and the partition that the address names, or the first ones.
 * @param {State} state
 * @param {Record<string, string>} parameters
 * @param {(topic: string) => boolean} [has] topics to choose from
 */
export function chosenPlace(state, parameters, has = () => true) {
  const topics = Object.keys(state.topics).sort().filter(has);
  const topic = parameters.topic !== undefined && state.topics[parameters.topic] ? parameters.topic : (topics.find((name) => !state.topics[name]?.internal) ?? topics[0]);
  return { topics, topic, partition: parameters.partition === undefined || parameters.partition === "" ? null : Number(parameters.partition) };
}

/** @param {{state: State, view: string, topics: string[], topic: string, partition: number | null, every: boolean}} properties `every`: whether all partitions can be chosen */
export function PlaceForm({ state, view, topics, topic, partition, every }) {
  const numbers = (state.topics[topic]?.partitions ?? []).map((_, number) => number);
  return html`
    <label>Topic <select data-filter value=${topic} onChange=${(/** @type {any} */ event) => go(view, { topic: event.target.value })}>
      ${topics.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
    </select></label>
    <label>Partition <select value=${partition ?? (every ? "" : 0)} onChange=${(/** @type {any} */ event) => go(view, { topic, partition: event.target.value })}>
      ${every && html`<option key="all" value="">all</option>`}
      ${numbers.map((number) => html`<option key=${number} value=${number}>${number}</option>`)}
    </select></label>`;
}
