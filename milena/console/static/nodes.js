// The nodes with what is wrong with them, and buttons for their processes.

import { post } from "./requests.js";
import { act, useChanges } from "./hooks.js";
import { html } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").Node} Node */

const SIGNS = { up: "● up", starting: "◌ starting", paused: "‖ paused", down: "✗ down" };

/** What a button does to a node's process, and what undoes it. */
export const PROCESS = {
  pause: { title: "Pause", about: "SIGSTOP: the process stands still and its connections stay open", undo: "resume" },
  resume: { title: "Resume", about: "SIGCONT: the process goes on", undo: "pause" },
  stop: { title: "Stop", about: "a clean shutdown: leaders move away first", undo: "start" },
  kill: { title: "Kill", about: "kill -9: what is not on disk survives in the page cache", undo: "start" },
  start: { title: "Start", about: "the process starts again with its files", undo: "stop" },
  power_off: { title: "Power off", about: "the process ends and its files lose what was not synced", undo: "start" },
  wipe: { title: "Wipe", about: "its log directories are emptied while it is down", undo: "" },
};

/** @typedef {keyof typeof PROCESS} ProcessCommand */

/** @type {Record<Node["state"], ProcessCommand[]>} */
const OFFERED = { up: ["pause", "kill", "stop"], starting: ["kill"], paused: ["resume", "kill"], down: ["start"] };

/**
 * Whether a process command can be given in this state.
 * @param {ProcessCommand} command
 * @param {Node["state"]} state
 */
export function isPossible(command, state) {
  if (command === "start" || command === "wipe") return state === "down";
  if (command === "resume") return state === "paused";
  if (command === "kill") return state !== "down";
  return state === "up";
}

/**
 * @param {string} name
 * @param {ProcessCommand} command
 */
export function command(name, command) {
  return act(`${PROCESS[command].title} ${name}`, post(`/api/nodes/${name}/${command}`));
}

/**
 * What a node suffers from: words for its card, with what ends each.
 * @param {Node} node
 * @returns {string[]}
 */
export function troublesOf(node) {
  const found = [];
  if (node.fenced) found.push("fenced");
  if (node.shutting_down) found.push("shutting down");
  for (const { peer, direction } of node.links ?? []) found.push(`link with ${peer} cut (${direction})`);
  for (const [name, count] of Object.entries(node.troubles ?? {})) if (name !== "wall_ms" && count > 0) found.push(`${name.replaceAll("_", " ")}: ${count}`);
  return found;
}

/** @param {{store: Store}} properties */
export function Nodes({ store }) {
  useChanges(store, ["nodes", "rules"]);
  const { nodes = {}, rules = {} } = store.state ?? {};
  const names = Object.keys(nodes).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  return html`<section aria-label="Nodes" class="nodes">
    ${names.map((name) => html`<${Card} key=${name} name=${name} node=${nodes[name]} rules=${rules[name]?.length ?? 0} />`)}
  </section>`;
}

/** @param {{name: string, node: Node, rules: number}} properties */
function Card({ name, node, rules }) {
  const troubles = troublesOf(node);
  const isBroker = node.role.includes("broker");
  const memory = node.memory ? `, ${Math.round(node.memory / 1e6)} MB` : "";
  const about = isBroker
    ? `broker epoch ${node.epoch ?? "?"}, leads ${node.leads} of ${node.hosts}${memory}`
    : `metadata offset ${node.metadata_offset ?? "?"}${memory}`;
  return html`<article class="panel node" aria-label=${name} data-node=${name} data-state=${node.state}>
    <h3>${name} <span class=${node.state === "up" ? "good" : "bad"}>${SIGNS[node.state]}</span></h3>
    <p class="dim">${about}<br />${node.address}</p>
    ${troubles.length > 0 && html`<p class="bad">✗ ${troubles.join(", ")}</p>`}
    ${rules > 0 && html`<p class="warn">⚑ ${rules} fault ${rules === 1 ? "rule" : "rules"}</p>`}
    <p class="buttons">
      ${OFFERED[node.state].map((one) => html`<button key=${one} type="button" title=${described(one)} onClick=${() => command(name, one)}>${PROCESS[one].title}
        <span class="hidden-text">${name}</span></button>`)}
      <a href=${`#/faults?node=${name}`}>Faults<span class="hidden-text"> of ${name}</span></a>
    </p>
  </article>`;
}

/** @param {ProcessCommand} command */
export function described(command) {
  const { about, undo } = PROCESS[command];
  return undo ? `${about}. Undo: ${PROCESS[/** @type {ProcessCommand} */ (undo)].title}.` : `${about}. It cannot be undone.`;
}
