// Faults: what is active with what ends it, and a card for every command of a node.

import { get, post, remove } from "./requests.js";
import { go } from "./choice.js";
import { grouped, RULES, titleOf, typed, UNDONE_BY } from "./commands.js";
import { act, useAnswer, useChanges } from "./hooks.js";
import { command, faultText, hasProcesses, isPossible } from "./nodes.js";
import { Elections } from "./partition.js";
import { html, useState } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Node} Node */
/** @typedef {import("./nodes.js").ProcessCommand} ProcessCommand */
/** @typedef {{node: string, text: string, undo: string, end: (() => Promise<unknown>) | null}} Active `end`: null if no command ends it */

const MOST_KNOWN = 200;
/** Proposed for the field api: the APIs that faults are usually about. */
const APIS = [
  "PRODUCE", "FETCH", "LIST_OFFSETS", "METADATA", "OFFSET_COMMIT", "OFFSET_FETCH", "FIND_COORDINATOR", "JOIN_GROUP", "HEARTBEAT", "SYNC_GROUP",
  "INIT_PRODUCER_ID", "OFFSET_FOR_LEADER_EPOCH", "ALTER_PARTITION", "BROKER_HEARTBEAT", "BROKER_REGISTRATION", "CONSUMER_GROUP_HEARTBEAT",
];
const ERRORS = ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "FENCED_LEADER_EPOCH", "OFFSET_OUT_OF_RANGE", "KAFKA_STORAGE_ERROR"];

/** The conditions of a rule that are asked for first; delay needs ms, and fail needs error. */
const FIRST = new Set(["api", "peer", "topic", "ms", "error"]);

/** @param {{store: Store, parameters: Record<string, string>}} properties */
export function FaultsView({ store, parameters }) {
  useChanges(store, ["nodes", "rules"]);
  const state = /** @type {State} */ (store.state);
  const names = Object.keys(state.nodes).sort();
  const name = parameters.node !== undefined && state.nodes[parameters.node] ? parameters.node : names[0];
  // A node has no commands while it is down: asked again when it comes back.
  const { answer, error } = useAnswer(() => get("/api/commands"), [name, name && state.nodes[name]?.state]);
  if (name === undefined) return html`<h2>Faults</h2><p class="panel">There is no node.</p>`;
  const commands = answer?.[name]?.commands ?? {};
  return html`<h2>Faults</h2>
    <${ActiveFaults} state=${state} />
    <div class="bar"><label>Node <select data-filter value=${name} onChange=${(/** @type {any} */ event) => go("faults", { node: event.target.value })}>
      ${names.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>
      <span class="dim">All commands below are for this node.</span></div>
    ${!state.cluster.lab && html`<p class="warn">This cluster runs without <code>--lab</code>: only its processes can be controlled.</p>`}
    ${error && html`<p class="bad">✗ ${error}</p>`}
    <${Known} state=${state} node=${state.nodes[name]} />
    ${grouped(commands).map(([title, members]) => html`<section key=${title} aria-label=${title}><h3>${title}</h3>
      <div class=${title === "Process" ? "cards small" : "cards"}>${members.map((member) => html`<${Card} key=${`${name} ${member.name}`} node=${name} command=${member} state=${state.nodes[name]?.state} />`)}</div></section>`)}
    <${Moves} state=${state} />`;
}

/** Elections and reassignment of a partition. @param {{state: State}} properties */
function Moves({ state }) {
  const [place, setPlace] = useState({ topic: "", number: 0 });
  const topics = Object.keys(state.topics).sort();
  const topic = state.topics[place.topic] ? place.topic : topics.find((name) => !state.topics[name]?.internal);
  if (topic === undefined) return null;
  const partitions = state.topics[topic]?.partitions ?? [];
  const part = partitions[place.number];
  return html`<section class="panel moves" aria-label="Partitions"><h3>Partitions</h3>
    <div class="bar"><label>Topic <select value=${topic} onChange=${(/** @type {any} */ event) => setPlace({ topic: event.target.value, number: 0 })}>
        ${topics.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
      <label>Partition <select value=${place.number} onChange=${(/** @type {any} */ event) => setPlace({ topic, number: Number(event.target.value) })}>
        ${partitions.map((_, number) => html`<option key=${number} value=${number}>${number}</option>`)}</select></label></div>
    ${part && html`<${Elections} key=${`${topic}-${place.number}`} topic=${topic} number=${place.number} part=${part} explained=${true} />`}</section>`;
}

/** The faults that the state shows. @param {State} state @returns {Active[]} */
export function activeFaults(state) {
  /** @type {Active[]} */
  const found = [];
  const steered = hasProcesses(state);
  for (const [name, node] of Object.entries(state.nodes)) {
    if (node.state === "paused") found.push({ node: name, text: "paused", undo: "Resume", end: () => command(name, "resume") });
    if (node.state === "down") found.push({ node: name, text: "down", undo: "Start", end: steered ? () => command(name, "start") : null });
    for (const link of node.links ?? []) {
      const text = `link with ${link.peer} cut, direction ${link.direction}`;
      found.push({ node: name, text, undo: "Heal", end: () => act(`Heal ${name} and ${link.peer}`, post(`/api/nodes/${name}/heal`, { peer: link.peer })) });
    }
    for (const fault of node.faults ?? []) found.push(ofMachine(name, fault));
  }
  for (const [name, rules] of Object.entries(state.rules)) {
    for (const rule of rules) {
      const end = () => act(`Release rule ${rule.rule} of ${name}`, remove(`/api/rules/${name}/${rule.rule}`));
      found.push({ node: name, text: ruleText(rule), undo: "Release", end });
    }
  }
  return found;
}

/** A fault of a disk, the clock or the tier. @param {string} node @param {import("./types.js").Fault} fault @returns {Active} */
function ofMachine(node, fault) {
  const undoneBy = UNDONE_BY[fault.command];
  const text = faultText(fault);
  if (!undoneBy) return { node, text: `${text}, until the node is restarted`, undo: "", end: null };
  const given = fault.path === undefined ? undoneBy[1] : { ...undoneBy[1], path: fault.path };
  return { node, text, undo: "End", end: () => act(`End ${fault.command}: ${node}`, post(`/api/nodes/${node}/${undoneBy[0]}`, given)) };
}

/** A rule as text: `hold FETCH peer=2, 3 hits`. @param {import("./types.js").Rule} rule */
function ruleText(rule) {
  const { rule: number, command, action, api, hits, held, ...others } = rule;
  const more = Object.entries(others).filter(([, value]) => value !== null && value !== "" && typeof value !== "object").map(([key, value]) => `${key}=${value}`);
  const count = [`${hits ?? 0} hits`, Array.isArray(held) && held.length ? `${held.length} held` : ""].filter(Boolean).join(", ");
  return `rule ${number}: ${command ?? action} ${api ?? "all APIs"} ${more.join(" ")} (${count})`;
}

/** @param {{state: State}} properties */
function ActiveFaults({ state }) {
  const active = activeFaults(state);
  const ends = active.flatMap((one) => one.end ?? []);
  return html`<section class="panel" aria-label="Active faults"><div class="bar"><h3>Active faults</h3>
      ${ends.length > 1 && html`<button type="button" onClick=${() => void Promise.all(ends.map((end) => end()))}>End all</button>`}</div>
    ${active.length === 0 && html`<p class="good">✓ none that the nodes show</p>`}
    <ul>${active.map((one) => html`<li key=${`${one.node} ${one.text}`}>${one.node}: ${one.text} ${one.end && html`<button type="button" onClick=${one.end}>${one.undo}<span class="hidden-text"> ${one.node}</span></button>`}</li>`)}</ul></section>`;
}

/** Values that the fields of arguments propose. @param {{state: State, node: Node}} properties */
function Known({ state, node }) {
  const peers = Object.values(state.nodes).map((one) => String(one.id)).filter((id) => id !== String(node.id));
  const lists = { topic: Object.keys(state.topics).sort(), peer: peers, node: peers, path: node.log_dirs, api: APIS, error: ERRORS, group: Object.keys(state.groups).sort() };
  return html`${Object.entries(lists).map(([name, values]) => html`<datalist key=${name} id=${`known-${name}`}>
    ${values.slice(0, MOST_KNOWN).map((value) => html`<option key=${value} value=${value}></option>`)}</datalist>`)}`;
}

/** @param {{node: string, command: import("./commands.js").NamedCommand, state: Node["state"]}} properties */
function Card({ node, command: described, state }) {
  const [answer, setAnswer] = useState("");
  const { name, about, undo, of_process: ofProcess } = described;
  const [title, isRule, undoneBy] = [titleOf(name), RULES.has(name), UNDONE_BY[name]];
  const first = described.arguments.filter((argument) => !isRule || argument.required || FIRST.has(argument.name));
  const more = described.arguments.filter((argument) => !first.includes(argument));
  const possible = ofProcess ? isPossible(/** @type {ProcessCommand} */ (name), state) : state === "up";
  /** @param {string} words @param {string} called @param {Record<string, unknown>} given */
  const give = async (words, called, given) => {
    const request = RULES.has(called) ? post("/api/rules", { node, action: called, ...given }) : post(`/api/nodes/${node}/${called}`, given);
    const answered = await act(words, request);
    if (answered && !ofProcess && !isRule) setAnswer(JSON.stringify(answered.ok ?? answered, null, 1));
  };
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const given = Object.fromEntries(described.arguments.flatMap((argument) => {
      const value = typed(argument, String(form.get(argument.name) ?? ""));
      return value === undefined ? [] : [[argument.name, value]];
    }));
    void give(`${title}: ${node}`, name, given);
  };
  return html`<article class="panel card" data-command=${name}>
    <h4>${title} <span class="dim code">${name}</span></h4>
    <p>${plain(about)} ${undo && html`<span class="dim">Undo: ${plain(undo)}.</span>`}</p>
    <form onSubmit=${submit}>
      ${first.map((argument) => html`<${Field} key=${argument.name} argument=${argument} />`)}
      ${more.length > 0 && html`<details><summary>More conditions</summary>${more.map((argument) => html`<${Field} key=${argument.name} argument=${argument} />`)}</details>`}
      <button disabled=${!possible}>${title}<span class="hidden-text"> ${node}</span></button>
      ${undoneBy && html`<button type="button" disabled=${!possible} onClick=${() => give(`Undo ${name}: ${node}`, undoneBy[0], undoneBy[1])}>Undo<span class="hidden-text"> ${title}</span></button>`}
    </form>
    ${answer && html`<pre class="answer code" tabindex="0" role="group" aria-label=${`Answer of ${name}`}>${answer}</pre>`}
  </article>`;
}

/** Words of the documentation without the marks of code. @param {string} text */
const plain = (text) => text.replaceAll("`", "");

/** @param {{argument: import("./commands.js").Argument}} properties */
function Field({ argument }) {
  const { name, type, required, about } = argument;
  const values = argument.values?.filter((value) => value !== "") ?? (type.includes("boolean") ? ["true", "false"] : null);
  const shown = argument.default === null || argument.default === undefined ? "" : String(argument.default);
  return html`<label title=${about}>${name}${required ? " (needed)" : ""}
    ${values
      ? html`<select name=${name} required=${required}><option value="">${shown}</option>
          ${values.map((value) => html`<option key=${value} value=${value}>${value}</option>`)}</select>`
      : html`<input name=${name} required=${required} placeholder=${shown} list=${`known-${name}`} autocomplete="off" />`}</label>`;
}
