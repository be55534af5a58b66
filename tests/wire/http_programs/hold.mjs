// Holds an AlterPartition, kills a broker, releases, and reads the ISR: over HTTP, without a library.
// Prints the ISR before the kill, while the request is held, and after its release, as one line of JSON.
import { readFileSync } from "node:fs";

const [directory] = process.argv.slice(2);
const read = (name) => readFileSync(`${directory}/${name}`, "utf8").trim();
const api = read("http-address");
const headers = { Authorization: `Bearer ${read("http-token")}`, "Content-Type": "application/json" };

async function call(method, path, body) {
  const answer = await fetch(`${api}${path}`, { method, headers, body: body && JSON.stringify(body) });
  const found = await answer.json();
  if (!answer.ok) throw new Error(`${method} ${path}: ${found.error}`);
  return found;
}

async function isr(topic) {
  const state = await call("GET", "/api/state");
  return state.topics[topic].partitions[0][4].toSorted();
}

await call("POST", "/api/topics", { name: "node", partitions: 1, replication_factor: 3 });
const before = await isr("node");
const state = await call("GET", "/api/state");
const killed = state.topics.node.partitions[0][0] === 3 ? 2 : 3;
const held = (await call("POST", "/api/rules", { node: "controller-100", action: "hold", api: "ALTER_PARTITION" })).ok;
await call("POST", `/api/nodes/broker-${killed}/kill`);
await call("POST", `/api/nodes/broker-${killed}/start`);
await call("GET", `/api/rules/${held.node}/${held.rule}/wait?hits=1&seconds=60`);
const during = await isr("node");
await call("DELETE", `/api/rules/${held.node}/${held.rule}`);
let after = await isr("node");
while (after.length < 3) after = await isr("node");
console.log(JSON.stringify({ before, killed, during, after }));
