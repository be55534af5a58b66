// The lab commands of a node as the server describes them: in groups, with forms for their arguments, and what undoes
// each. Only the words on the buttons are the console's own.

/** @typedef {{name: string, type: string, required: boolean, default: unknown, values: string[] | null, about: string}} Argument `type`: as in `string or integer` */
/** @typedef {{group: string, about: string, arguments: Argument[], returns: string, changes: boolean, undo: string, of_process: boolean}} Command */
/** @typedef {Command & {name: string}} NamedCommand */

export const RULES = new Set(["hold", "delay", "drop", "disconnect", "fail", "duplicate", "trace"]);

/** @type {Record<string, string>} */
const TITLES = {
  hold: "Hold requests",
  delay: "Delay requests",
  drop: "Drop requests",
  disconnect: "Close connections",
  fail: "Fail requests",
  duplicate: "Duplicate requests",
  trace: "Record requests",
  cut: "Cut a link",
  heal: "Heal links",
  fill_disk: "Fill a disk",
  fail_disk: "Let a disk fail",
  slow_disk: "Slow a disk down",
  jump_clock: "Move the clock",
  break_tier: "Unmount or break the tier",
};

/** Commands that undo another at once. @type {Record<string, [string, Record<string, unknown>]>} */
export const UNDONE_BY = {
  cut: ["heal", {}],
  slow_disk: ["slow_disk", { ms: 0 }],
  jump_clock: ["jump_clock", { ms: 0 }],
  break_tier: ["break_tier", {}],
};

/** The groups with faults come first; then all in the server's order. */
const FIRST_GROUPS = ["Process", "Fault rules", "Links", "Disks, clock and tier", "Log and tier"];

/** Commands that other parts of the page give, or that belong to a reset of the whole cluster. */
const HIDDEN = new Set([
  "release", "rules", "clear", "wait", "traced", "links", "faults", "ready", "help", "observe", "busy", "wait_idle",
  "reset", "settle", "erase_tier", "flush_all", "halt", "reopen",
]);

/** @param {string} name */
export function titleOf(name) {
  return TITLES[name] ?? `${name.charAt(0).toUpperCase()}${name.slice(1).replaceAll("_", " ")}`;
}

/**
 * The commands of a node by group.
 * @param {Record<string, Command>} commands
 * @returns {[string, NamedCommand[]][]}
 */
export function grouped(commands) {
  /** @type {Map<string, NamedCommand[]>} */
  const groups = new Map(FIRST_GROUPS.map((group) => [group, []]));
  for (const [name, command] of Object.entries(commands)) {
    if (HIDDEN.has(name)) continue;
    const group = groups.get(command.group);
    if (group) group.push({ ...command, name });
    else groups.set(command.group, [{ ...command, name }]);
  }
  return [...groups].filter(([, members]) => members.length > 0);
}

/**
 * The value that was typed for an argument; undefined: none.
 * @param {Argument} argument
 * @param {string} text
 */
export function typed(argument, text) {
  const given = text.trim();
  if (given === "") return undefined;
  if (argument.type.includes("boolean")) return given === "true";
  if (/integer|number/.test(argument.type) && !Number.isNaN(Number(given))) return Number(given);
  return given;
}
