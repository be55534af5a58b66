// Groups: members, what is assigned to them, committed offsets and lag.

import { groupLag, partitionLag } from "./charts.js";
import { useChanges } from "./hooks.js";
import { html, useState } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Group} Group */

/** The most rows of a table. */
const MOST = 200;

/** @param {{store: Store, parameters: Record<string, string>}} properties */
export function GroupsView({ store, parameters }) {
  useChanges(store, ["groups", "parts"]);
  const [text, setText] = useState("");
  const state = /** @type {State} */ (store.state);
  const names = Object.keys(state.groups).sort().filter((name) => name.includes(text));
  const chosen = parameters.group ?? names[0];
  const group = chosen === undefined ? undefined : state.groups[chosen];
  return html`<h2>Groups</h2>
    <div class="bar"><label>Name <input data-filter type="search" onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
      <span class="dim" role="status">${names.length} of ${Object.keys(state.groups).length} groups</span></div>
    ${names.length === 0 && html`<p class="panel">There is no group${text ? " with such a name" : ": no consumer has committed or joined"}.</p>`}
    ${names.length > 0 && html`<div class="scroll" tabindex="0" role="group" aria-label="Table of groups"><table>
      <caption class="hidden-text">Groups</caption>
      <thead><tr>${["group", "state", "type", "assignor", "coordinator", "members", "behind"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${names.slice(0, MOST).map((name) => row(state, name, name === chosen))}</tbody>
    </table></div>`}
    ${chosen !== undefined && group && html`<${Details} state=${state} name=${chosen} group=${group} />`}`;
}

/** @param {State} state @param {string} name @param {boolean} chosen */
function row(state, name, chosen) {
  const group = /** @type {Group} */ (state.groups[name]);
  return html`<tr key=${name}>
    <th scope="row"><a href=${`#/groups?group=${encodeURIComponent(name)}`} aria-current=${chosen ? "true" : null}>${chosen ? "▸ " : ""}${name}</a></th>
    <td>${group.state}</td><td>${group.type}</td><td>${group.protocol || "–"}</td><td>${group.coordinator}</td>
    <td class="number">${group.members.length}</td><td class="number">${groupLag(state, group).toLocaleString("en")}</td></tr>`;
}

/** @param {{state: State, name: string, group: Group}} properties */
function Details({ state, name, group }) {
  /** Topic, partition, committed offset. @type {[string, number, number][]} */
  const offsets = Object.entries(group.offsets).flatMap(([topic, partitions]) =>
    Object.entries(partitions).map(([number, offset]) => /** @type {[string, number, number]} */ ([topic, Number(number), offset])),
  );
  const owners = ownersOf(group);
  return html`<section aria-label=${`Group ${name}`}>
    <h3>${name}: members</h3>
    ${group.members.length === 0 ? html`<p class="dim">No members.</p>` : html`<table><caption class="hidden-text">Members</caption>
      <thead><tr>${["client", "host", "assigned", "member id"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${group.members.map((member) => html`<tr key=${member.id}><th scope="row">${member.client}</th><td>${member.host}</td>
        <td>${assigned(member.assigned)}</td><td class="code dim">${member.id}</td></tr>`)}</tbody></table>`}
    <h3>${name}: committed offsets</h3>
    ${offsets.length === 0 ? html`<p class="dim">No committed offsets.</p>` : html`<table><caption class="hidden-text">Committed offsets</caption>
      <thead><tr>${["partition", "committed", "behind", "member"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${offsets.slice(0, MOST).map(([topic, number, offset]) => html`<tr key=${`${topic}-${number}`}><th scope="row">${topic}-${number}</th>
        <td class="number">${offset.toLocaleString("en")}</td><td class="number">${partitionLag(state, topic, number, offset)?.toLocaleString("en") ?? "–"}</td>
        <td>${owners.get(`${topic}-${number}`) ?? "–"}</td></tr>`)}</tbody></table>
      ${offsets.length > MOST && html`<p class="dim">and ${offsets.length - MOST} more</p>`}`}
  </section>`;
}

/** The client of each assigned partition. @param {Group} group */
function ownersOf(group) {
  const owners = new Map();
  for (const member of group.members) {
    for (const [topic, numbers] of Object.entries(member.assigned)) for (const number of numbers) owners.set(`${topic}-${number}`, member.client);
  }
  return owners;
}

/** @param {Record<string, number[]>} assigned */
function assigned(assigned) {
  return Object.entries(assigned).map(([topic, numbers]) => `${topic}: ${numbers.join(", ")}`).join("; ") || "nothing";
}
