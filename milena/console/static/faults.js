// Faults: what is active with what ends it, and a card for every command of a node.

import { get, post, remove } from "./requests.js";
import { go } from "./choice.js";
import { grouped, knownCommand, RULES, typed } from "./commands.js";
import { act, useAnswer, useChanges } from "./hooks.js";
import { command, described, isPossible, PROCESS } from "./nodes.js";
import { html, useState } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Node} Node */
/** @typedef {import("./nodes.js").ProcessCommand} ProcessCommand */
/** @typedef {{node: string, text: string, undo: string, end: () => Promise<unknown>}} Active */

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
    <${Processes} name=${name} node=${state.nodes[name]} />
    ${error && html`<p class="bad">✗ ${error}</p>`}
    ${grouped(commands).map(([title, members]) => html`<section key=${title} aria-label=${title}><h3>${title}</h3>
      <div class="cards">${members.map((member) => html`<${Card} key=${`${name} ${member}`} node=${name} name=${member} command=${commands[member]} />`)}</div></section>`)}
    <h3>Partitions</h3>
    <p>Elections and reassignments of a partition are in its details: choose it in the <a href="#/overview">overview</a>.</p>`;
}

/** The faults that the state shows. @param {State} state @returns {Active[]} */
export function activeFaults(state) {
  /** @type {Active[]} */
  const found = [];
  for (const [name, node] of Object.entries(state.nodes)) {
    if (node.state === "paused") found.push({ node: name, text: "paused", undo: "Resume", end: () => command(name, "resume") });
    if (node.state === "down") found.push({ node: name, text: "down", undo: "Start", end: () => command(name, "start") });
    for (const link of node.links ?? []) {
      const text = `link with ${link.peer} cut, direction ${link.direction}`;
      found.push({ node: name, text, undo: "Heal", end: () => act(`Heal ${name} and ${link.peer}`, post(`/api/nodes/${name}/heal`, { peer: link.peer })) });
    }
  }
  for (const [name, rules] of Object.entries(state.rules)) {
    for (const rule of rules) {
      const end = () => act(`Release rule ${rule.rule} of ${name}`, remove(`/api/rules/${name}/${rule.rule}`));
      found.push({ node: name, text: ruleText(rule), undo: "Release", end });
    }
  }
  return found;
}

/** A rule as text: `hold FETCH peer=2, 3 hits`. @param {import("./types.js").Rule} rule */
function ruleText(rule) {
  const { rule: number, command, action, api, hits, held, ...others } = rule;
  const more = Object.entries(others).filter(([, value]) => value !== null && value !== "" && typeof value !== "object").map(([key, value]) => `${key}=${value}`);
  const count = [`${hits ?? 0} hits`, held ? `${held} held` : ""].filter(Boolean).join(", ");
  return `rule ${number}: ${command ?? action} ${api ?? "all APIs"} ${more.join(" ")} (${count})`;
}

/** @param {{state: State}} properties */
function ActiveFaults({ state }) {
  const active = activeFaults(state);
  return html`<section class="panel" aria-label="Active faults"><div class="bar"><h3>Active faults</h3>
      ${active.length > 1 && html`<button type="button" onClick=${() => void Promise.all(active.map((one) => one.end()))}>End all</button>`}</div>
    ${active.length === 0 && html`<p class="good">✓ none that the nodes show</p>`}
    <ul>${active.map((one) => html`<li key=${`${one.node} ${one.text}`}>${one.node}: ${one.text} <button type="button" onClick=${one.end}>${one.undo}
      <span class="hidden-text">${one.node}</span></button></li>`)}</ul></section>`;
}

/** @param {{name: string, node: Node}} properties */
function Processes({ name, node }) {
  const all = /** @type {ProcessCommand[]} */ (Object.keys(PROCESS));
  return html`<section aria-label="Process"><h3>Process: ${name} is ${node.state}</h3>
    <div class="cards">${all.map((one) => html`<article key=${one} class="panel card">
      <h4>${PROCESS[one].title}</h4><p>${described(one)}</p>
      <button type="button" disabled=${!isPossible(one, node.state)} onClick=${() => command(name, one)}>${PROCESS[one].title} ${name}</button>
    </article>`)}</div></section>`;
}

/** @param {{node: string, name: string, command: import("./commands.js").Command}} properties */
function Card({ node, name, command }) {
  const [answer, setAnswer] = useState("");
  const known = knownCommand(name);
  const isRule = RULES.has(name);
  /** @param {string} words @param {string} called @param {Record<string, unknown>} given */
  const give = async (words, called, given) => {
    const request = RULES.has(called) ? post("/api/rules", { node, action: called, ...given }) : post(`/api/nodes/${node}/${called}`, given);
    const answered = await act(words, request);
    if (answered) setAnswer(JSON.stringify(answered.ok ?? answered, null, 1));
  };
  const submit = (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    const given = Object.fromEntries(command.arguments.flatMap((argument) => {
      const value = typed(argument, String(form.get(argument.name) ?? ""));
      return value === undefined ? [] : [[argument.name, value]];
    }));
    void give(`${known?.title ?? name} at ${node}`, name, given);
  };
  return html`<article class="panel card" data-command=${name}>
    <h4>${known?.title ?? name.replaceAll("_", " ")} <span class="dim code">${name}</span></h4>
    <p>${command.about}</p>
    ${known && html`<p class="dim">Undo: ${known.undo}.</p>`}
    <form onSubmit=${submit}>
      ${command.arguments.map((argument) => html`<${Field} key=${argument.name} argument=${argument} />`)}
      <button>${known?.title ?? name.replaceAll("_", " ")}</button>
      ${known?.by && html`<button type="button" onClick=${() => give(`Undo ${name} at ${node}`, .../** @type {[string, any]} */ (known.by))}>Undo</button>`}
    </form>
    ${answer && (isRule ? html`<p class="dim" role="status">${answer}</p>` : html`<pre class="answer code" tabindex="0" role="group" aria-label=${`Answer of ${name}`}>${answer}</pre>`)}
  </article>`;
}

/** @param {{argument: import("./commands.js").Argument}} properties */
function Field({ argument }) {
  const { name, type, required, values, about } = argument;
  const choices = values?.length ? values : /bool/.test(type) ? [true, false] : null;
  const shown = argument.default === null || argument.default === undefined ? "" : String(argument.default);
  const title = `${name}${required ? " (needed)" : ""}`;
  return html`<label title=${about ?? ""}>${title}
    ${choices
      ? html`<select name=${name} required=${required}><option value="">${shown}</option>
          ${choices.map((value) => html`<option key=${value} value=${String(value)}>${String(value)}</option>`)}</select>`
      : html`<input name=${name} required=${required} placeholder=${shown} />`}</label>`;
}
