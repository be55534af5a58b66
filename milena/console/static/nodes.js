// The nodes with what is wrong with them, and buttons for their processes.

import { post } from "./requests.js";
import { act, useChanges } from "./hooks.js";
import { html } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */
/** @typedef {import("./types.js").Node} Node */

const SIGNS = { up: "● up", starting: "◌ starting", paused: "‖ paused", down: "✗ down" };

/** What a button does to a node's process, and what undoes it. */
const PROCESS = {
  pause: { title: "Pause", about: "Stop the process by SIGSTOP; its connections stay open. Undo: Resume." },
  resume: { title: "Resume", about: "Continue the paused process. Undo: Pause." },
  stop: { title: "Stop", about: "Shut the node down cleanly. Undo: Start." },
  kill: { title: "Kill", about: "End the process by SIGKILL: written data is kept. Undo: Start." },
  start: { title: "Start", about: "Start the node. Undo: Stop." },
};

/** @typedef {keyof typeof PROCESS | "power_off" | "wipe"} ProcessCommand */

/** @type {Record<Node["state"], (keyof typeof PROCESS)[]>} */
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

/** Whether the nodes have a `milena up`, which controls their processes. @param {import("./types.js").State | null} state */
export const hasProcesses = (state) => (state?.cluster.dir ?? null) !== null;

/**
 * @param {string} name
 * @param {keyof typeof PROCESS} command
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
  for (const fault of node.faults ?? []) found.push(faultText(fault));
  for (const [name, count] of Object.entries(node.troubles ?? {})) if (name !== "wall_ms" && count > 0) found.push(`${name.replaceAll("_", " ")}: ${count}`);
  return found;
}

/** Words for the commands of faults. @type {Record<string, string>} */
const FAULTS = { fail_disk: "disk fails", fill_disk: "disk is full", slow_disk: "disk is slow", jump_clock: "clock moved", break_tier: "tier has a fault" };

/** A fault of a disk, the clock or the tier as text: `disk is slow (path=/d, ms=20)`. @param {import("./types.js").Fault} fault */
export function faultText({ command, ...given }) {
  const shown = Object.entries(given).filter(([, value]) => value).map(([name, value]) => `${name}=${value}`);
  return `${FAULTS[command] ?? command} (${shown.join(", ")})`;
}

/** @param {{store: Store}} properties */
export function Nodes({ store }) {
  useChanges(store, ["nodes", "rules"]);
  const { nodes = {}, rules = {} } = store.state ?? {};
  const steered = hasProcesses(store.state);
  const names = Object.keys(nodes).sort((one, other) => one.localeCompare(other, "en", { numeric: true }));
  return html`<section aria-label="Nodes" class="nodes">
    ${names.map((name) => html`<${Card} key=${name} name=${name} node=${nodes[name]} steered=${steered} rules=${rules[name]?.length ?? 0} />`)}
  </section>`;
}

/** @param {{name: string, node: Node, steered: boolean, rules: number}} properties */
function Card({ name, node, steered, rules }) {
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
      ${steered && OFFERED[node.state].map((one) => html`<button key=${one} type="button" title=${PROCESS[one].about} onClick=${() => command(name, one)}>${PROCESS[one].title}<span class="hidden-text"> ${name}</span></button>`)}
      <a href=${`#/faults?node=${name}`}>Faults<span class="hidden-text"> of ${name}</span></a>
    </p>
  </article>`;
}
