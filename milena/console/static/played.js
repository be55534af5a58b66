// A step of a scenario: its logs, what has changed since the previous step, and its tables.

import { element } from "./dom.js";

/** @typedef {import("./draw.js").Log} Log */
/** @typedef {import("./draw.js").Mark} Mark */
/** @typedef {import("./draw.js").Happening} Happening */

/**
 * @typedef {object} Replica
 * @property {boolean} stopped
 * @property {string | null} role
 * @property {[number, string | number, number][]} log offset, value, leader epoch
 * @property {[number, number][]} epochs
 * @property {number | null} log_start
 * @property {number | null} local_log_start
 * @property {number | null} high_watermark
 * @property {number | null} log_end
 * @property {boolean | null} in_isr
 * @property {string | null} state
 */

/**
 * @typedef {object} Segment
 * @property {string} partition
 * @property {string} name
 * @property {number} first
 * @property {number} last
 * @property {[number, number][]} epochs
 * @property {[number, string | number, number][]} log
 * @property {string} [state]
 */

/** @typedef {{ expected: string | null, actual: string | null, mark: string, reason: string }} Row */
/** @typedef {{ name: string, kind: string, rows: Row[] }} Table */

/**
 * @typedef {object} Step
 * @property {number} number
 * @property {string} title
 * @property {string | null} quote
 * @property {number} seconds
 * @property {string[]} actions
 * @property {Happening[]} events
 * @property {Table[]} tables
 * @property {Record<string, Replica>} replicas
 * @property {Segment[]} segments
 * @property {{ text: string, wrong: string | null }[]} checks
 * @property {string | null} wrong
 */

/**
 * @typedef {object} Run
 * @property {string} scenario
 * @property {string | null} variant
 * @property {string} title
 * @property {string | null} document
 * @property {string | null} note
 * @property {string} world
 * @property {string} outcome
 * @property {string | null} conclusion
 * @property {string | null} [error] why the run failed, if no step did
 * @property {Record<string, number>} epochs the document's leader epochs, and those of the run
 * @property {Step[]} steps
 */

/** @type {[keyof Replica, string][]} */
const MARKS = [
  ["log_start", "log start"],
  ["local_log_start", "local log start"],
  ["high_watermark", "high watermark"],
  ["log_end", "log end"],
];
const MAIN = "";

/**
 * Return the logs of each partition, local ones and then segments of the tier, with what differs from the previous step.
 * @param {Step} step
 * @param {Step | undefined} before
 * @returns {Map<string, Log[]>} by partition; the scenario's own partition has the name ""
 */
export function logsOf(step, before) {
  /** @type {Map<string, Log[]>} */
  const found = new Map();
  for (const [name, replica] of Object.entries(step.replicas)) {
    put(found, partitionOf(name), replicaLog(name, replica, before?.replicas[name], before !== undefined));
  }
  for (const segment of step.segments) {
    const was = before?.segments.find((one) => same(one, segment));
    const partition = [...found.keys()].find((one) => one !== MAIN && segment.partition === one) ?? MAIN;
    put(found, partition, segmentLog(segment, was, before !== undefined));
  }
  return found;
}

/** @param {string} name such as `A`, or `A/u-1` for another partition */
function partitionOf(name) {
  const at = name.indexOf("/");
  return at < 0 ? MAIN : name.slice(at + 1);
}

/**
 * @param {Map<string, Log[]>} found
 * @param {string} partition
 * @param {Log} log
 */
function put(found, partition, log) {
  const logs = found.get(partition);
  if (logs === undefined) found.set(partition, [log]);
  else logs.push(log);
}

/**
 * @param {Segment} one
 * @param {Segment} other
 */
function same(one, other) {
  return one.name === other.name && one.partition === other.partition;
}

/**
 * @param {string} name
 * @param {Replica} replica
 * @param {Replica | undefined} was
 * @param {boolean} compares whether there is a previous step
 * @returns {Log}
 */
function replicaLog(name, replica, was, compares) {
  const marks = MARKS.flatMap(([key, text]) => {
    const offset = replica[key];
    if (typeof offset !== "number") return [];
    return [{ name: text, offset, moved: was !== undefined && was[key] !== offset }];
  });
  const first = replica.log[0]?.[0];
  const last = replica.log.at(-1)?.[0];
  const start = replica.log_start ?? first ?? 0;
  return {
    name: name.split("/")[0] ?? name,
    about: aboutOf(replica),
    kind: "local",
    start,
    end: replica.log_end ?? (last === undefined ? start : last + 1),
    localStart: replica.local_log_start ?? undefined,
    epochs: epochsOf(replica),
    records: labels(replica.log),
    marks,
    stopped: replica.stopped,
    changed: compares && (was === undefined || aboutOf(was) !== aboutOf(replica)),
    ...recordsChanged(replica.log, was?.log, compares),
  };
}

/**
 * The records' own epochs where there are records: a checkpoint may lack one, or have one without records.
 * @param {{ log: [number, string | number, number][], epochs: [number, number][] }} log
 * @returns {[number, number][]}
 */
function epochsOf({ log, epochs }) {
  /** @type {[number, number][]} */
  const found = [];
  for (const [offset, , epoch] of log) if (found.at(-1)?.[0] !== epoch) found.push([epoch, offset]);
  const first = found[0];
  return first === undefined ? epochs : [...epochs.filter(([epoch, start]) => epoch < first[0] && start < first[1]), ...found];
}

/** @param {Replica} replica */
function aboutOf(replica) {
  const isr = replica.in_isr === true ? "in ISR" : replica.in_isr === false ? "not in ISR" : null;
  return [replica.stopped ? "stopped" : replica.role, replica.stopped ? null : isr, replica.state].filter(Boolean).join(", ");
}

/**
 * @param {Segment} segment
 * @param {Segment | undefined} was
 * @param {boolean} compares
 * @returns {Log}
 */
function segmentLog(segment, was, compares) {
  const isNew = compares && was === undefined;
  return {
    name: segment.name,
    about: (segment.state ?? "").replace(/_/g, " ").toLowerCase(),
    kind: "remote",
    start: segment.first,
    end: segment.last + 1,
    epochs: epochsOf(segment),
    records: labels(segment.log),
    changed: isNew || (was !== undefined && was.state !== segment.state),
    ...(isNew ? {} : recordsChanged(segment.log, was?.log, compares)),
  };
}

/**
 * @param {[number, string | number, number][]} log
 * @returns {Map<number, string>}
 */
function labels(log) {
  return new Map(log.map(([offset, value]) => [offset, valueText(value)]));
}

/** @param {string | number} value */
function valueText(value) {
  return typeof value === "number" || /^\d+$/.test(value) ? `msg ${value}` : String(value);
}

/**
 * @param {[number, string | number, number][]} log
 * @param {[number, string | number, number][] | undefined} was
 * @param {boolean} compares
 */
function recordsChanged(log, was, compares) {
  if (!compares) return {};
  const key = (/** @type {[number, string | number, number]} */ one) => one.join(" ");
  const before = new Set((was ?? []).map(key));
  const now = new Set(log.map(key));
  const offsets = new Set(log.map(([offset]) => offset));
  return {
    added: new Set(log.filter((one) => !before.has(key(one))).map(([offset]) => offset)),
    removed: new Map(
      (was ?? []).filter((one) => !now.has(key(one)) && !offsets.has(one[0])).map(([offset, value]) => [offset, valueText(value)]),
    ),
  };
}

/**
 * Return the changes since the previous step, one sentence each.
 * @param {Step} step
 * @param {Step | undefined} before
 * @returns {string[]}
 */
export function changesOf(step, before) {
  if (before === undefined) return [];
  const found = [];
  for (const [name, now] of Object.entries(step.replicas)) {
    const was = before.replicas[name];
    if (was === undefined) found.push(`${name}: new replica`);
    else found.push(...replicaChanges(name, now, was));
  }
  for (const name of Object.keys(before.replicas)) if (!(name in step.replicas)) found.push(`${name}: no replica any more`);
  for (const segment of step.segments) {
    const was = before.segments.find((one) => same(one, segment));
    const span = `offsets ${segment.first} to ${segment.last}`;
    if (was === undefined) found.push(`tier: ${segment.name} is new, ${span}`);
    else if (was.state !== segment.state) found.push(`tier: ${segment.name}: ${was.state} → ${segment.state}`);
  }
  for (const was of before.segments) {
    if (!step.segments.some((one) => same(one, was))) found.push(`tier: ${was.name} is deleted`);
  }
  return found;
}

/**
 * @param {string} name
 * @param {Replica} now
 * @param {Replica} was
 */
function replicaChanges(name, now, was) {
  const found = [];
  const [about, former] = [aboutOf(now), aboutOf(was)];
  if (about !== former) found.push(`${name}: ${former || "no state"} → ${about || "no state"}`);
  const { added, removed } = recordsChanged(now.log, was.log, true);
  if (added?.size) found.push(`${name}: new records at ${spans([...added])}`);
  if (removed?.size) found.push(`${name}: no records any more at ${spans([...removed.keys()])}`);
  for (const [key, text] of MARKS) {
    if (now[key] !== was[key]) found.push(`${name}: ${text} ${was[key] ?? "unknown"} → ${now[key] ?? "unknown"}`);
  }
  const [epochs, formerEpochs] = [epochText(now.epochs), epochText(was.epochs)];
  if (epochs !== formerEpochs) found.push(`${name}: epochs ${formerEpochs} → ${epochs}`);
  return found;
}

/** @param {[number, number][]} epochs */
function epochText(epochs) {
  return epochs.length > 0 ? epochs.map(([epoch, start]) => `LE-${epoch} from ${start}`).join(", ") : "none";
}

/**
 * Return offsets as text: `offsets 2 to 4, 7`.
 * @param {number[]} offsets in ascending order
 */
function spans(offsets) {
  /** @type {[number, number][]} */
  const found = [];
  for (const offset of offsets) {
    const last = found.at(-1);
    if (last !== undefined && last[1] === offset - 1) last[1] = offset;
    else found.push([offset, offset]);
  }
  const only = found.length === 1 && found[0] !== undefined && found[0][0] === found[0][1];
  return `offset${only ? "" : "s"} ${found.map(([first, last]) => (first === last ? first : `${first} to ${last}`)).join(", ")}`;
}

const SIGNS = /** @type {Record<string, [string, string]>} */ ({
  same: ["=", "the same"],
  differs: ["≠", "differs"],
  accepted: ["≈", "accepted"],
  unchecked: ["", "not checked"],
});

/**
 * Return the tables of a step: expected and actual rows side by side, with a sign for each difference.
 * @param {Table[]} tables
 */
export function drawTables(tables) {
  return element("div", { class: "side-by-side" }, tables.map(drawTable));
}

/** @param {Table} table */
function drawTable(table) {
  const compared = table.rows.some((row) => row.expected !== null || row.mark !== "unchecked");
  const reasons = table.rows.some((row) => row.reason !== "");
  const titles = compared ? ["expected", "actual", "", ...(reasons ? ["reason"] : [])] : ["actual"];
  return element(
    "table",
    { "data-table": table.name },
    element("caption", {}, table.kind === "replica" ? `replica ${table.name}` : table.name),
    element("thead", {}, element("tr", {}, titles.map((title) => element("th", { scope: "col" }, title || hidden("compared"))))),
    element("tbody", {}, table.rows.map((row) => drawRow(row, compared, reasons))),
  );
}

/**
 * @param {Row} row
 * @param {boolean} compared
 * @param {boolean} reasons
 */
function drawRow(row, compared, reasons) {
  if (!compared) return element("tr", {}, element("td", { class: "code" }, row.actual ?? ""));
  const [sign, meaning] = SIGNS[row.mark] ?? ["?", row.mark];
  const said = row.mark === "differs" ? `${sign} differs` : sign;
  return element(
    "tr",
    { class: row.mark },
    element("td", { class: "code" }, row.expected ?? (row.mark === "unchecked" ? "" : "–")),
    element("td", { class: "code" }, row.actual ?? "–"),
    element("td", { title: meaning }, element("span", { "aria-hidden": true }, said), hidden(meaning)),
    reasons && element("td", {}, row.reason),
  );
}

/** @param {string} text */
function hidden(text) {
  return element("span", { class: "hidden-text" }, text);
}
