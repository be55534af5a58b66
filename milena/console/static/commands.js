// What the lab commands of a node do, in groups, and what undoes each. The words for what a command does and its
// arguments come from the server.

/** @typedef {{name: string, type: string, required: boolean, default: unknown, values?: unknown[] | null, about?: string}} Argument */
/** @typedef {{about: string, arguments: Argument[]}} Command */
/** @typedef {{title: string, undo: string, by?: [string, Record<string, unknown>]}} Known `by`: the command that undoes it */

export const RULES = new Set(["hold", "delay", "fail", "error", "drop", "disconnect", "duplicate", "trace"]);

const RELEASE = "release the rule, in the list of active faults";
const RESTART = "kill or stop the node, and start it";

/** @type {Record<string, Record<string, Known>>} */
export const GROUPS = {
  "Requests": {
    hold: { title: "Hold requests", undo: `${RELEASE}; the held requests go on in their order` },
    delay: { title: "Delay requests", undo: RELEASE },
    fail: { title: "Fail requests with an error", undo: RELEASE },
    error: { title: "Answer with an error", undo: RELEASE },
    drop: { title: "Drop requests", undo: RELEASE },
    disconnect: { title: "Close the connection", undo: RELEASE },
    duplicate: { title: "Duplicate requests", undo: RELEASE },
    trace: { title: "Record requests", undo: RELEASE },
  },
  "Network": {
    cut: { title: "Cut a link", undo: "heal", by: ["heal", {}] },
    heal: { title: "Heal links", undo: "cut the link again" },
  },
  "Disk": {
    fill_disk: { title: "Fill a disk", undo: RESTART },
    fail_disk: { title: "Let a disk fail", undo: RESTART },
    slow_disk: { title: "Slow a disk down", undo: "the same with ms 0", by: ["slow_disk", { ms: 0 }] },
  },
  "Clock": {
    jump_clock: { title: "Move the clock", undo: "the same with ms 0", by: ["jump_clock", { ms: 0 }] },
  },
  "Tier": {
    break_tier: { title: "Unmount or break the tier", undo: "the same without arguments; lost logs stay lost", by: ["break_tier", {}] },
  },
  "Logs and tier, at once": {
    roll: { title: "Roll a segment", undo: "nothing does" },
    flush: { title: "Flush a log", undo: "nothing does" },
    retention: { title: "Delete expired segments", undo: "nothing does" },
    compact: { title: "Compact", undo: "nothing does" },
    tiering: { title: "Copy and expire in the tier", undo: "nothing does" },
  },
};

/** Commands that change nothing, or that other parts of the page give. */
const HIDDEN = new Set(["release", "rules", "clear", "wait", "traced", "links", "ready", "power_off", "observe", "help"]);

/**
 * The commands of a node in groups: those of GROUPS that the node has, then all others.
 * @param {Record<string, Command>} commands
 * @returns {[string, string[]][]}
 */
export function grouped(commands) {
  const known = new Set(Object.values(GROUPS).flatMap((group) => Object.keys(group)));
  const others = Object.keys(commands).filter((name) => !known.has(name) && !HIDDEN.has(name)).sort();
  /** @type {[string, string[]][]} */
  const groups = Object.entries(GROUPS).map(([title, group]) => [title, Object.keys(group).filter((name) => commands[name])]);
  groups.push(["Look into the node", others]);
  return groups.filter(([, names]) => names.length > 0);
}

/** @param {string} name @returns {Known | undefined} */
export function knownCommand(name) {
  return Object.values(GROUPS).find((group) => group[name])?.[name];
}

/**
 * The value that was typed for an argument; undefined: none.
 * @param {Argument} argument
 * @param {string} text
 */
export function typed(argument, text) {
  if (text.trim() === "") return undefined;
  if (/bool/.test(argument.type)) return text === "true";
  if (/int|float|number/.test(argument.type) && !Number.isNaN(Number(text))) return Number(text);
  return text.trim();
}
