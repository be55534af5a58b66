// The replicas of a partition as thin bars on one axis of offsets, painted on a canvas: rows of a long list are painted
// again several times a second. draw.js draws the same larger, as a drawing with titles.

import { runsOf } from "./draw.js";

/** @typedef {import("./types.js").Part} Part */
/** @typedef {import("./types.js").Replica} Replica */
/** @typedef {{epochs: string[], text: string, dim: string, line: string, page: string, bad: string}} Palette */

export const LINE = 16;
const BAR = 13;
const NAME = 62;
const STATE = 190;
const EPOCHS = 8;
/** Made once: a row is painted several times a second. */
const NUMBER = new Intl.NumberFormat("en");

/**
 * The colours of the theme, which a canvas cannot take from the style sheet.
 * @returns {Palette}
 */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  /** @param {string} name */
  const colour = (name) => style.getPropertyValue(name).trim();
  const epochs = Array.from({ length: EPOCHS }, (_, at) => colour(`--epoch-${at}`));
  return { epochs, text: colour("--text"), dim: colour("--dim"), line: colour("--lane"), page: colour("--page"), bad: colour("--bad") };
}

/**
 * The leader epochs of a replica with their first offsets.
 * @param {Replica} replica
 * @returns {[number, number][]}
 */
export function epochsOf(replica) {
  const flat = replica[8];
  return Array.from({ length: flat.length / 2 }, (_, at) => [flat[2 * at] ?? 0, flat[2 * at + 1] ?? 0]);
}

/**
 * The records that a follower's log lacks; null if that is unknown or does not apply.
 * @param {Part} part
 * @param {number} id
 */
export function lagOf(part, id) {
  const [leader, replica] = [part[8][part[0]], part[8][id]];
  if (!leader || !replica || replica[0] !== "F" || replica[5] < 0) return null;
  return Math.max(0, leader[5] - replica[5]);
}

/**
 * The state of a replica in a few words, beside its bar.
 * @param {Part} part
 * @param {number} id
 */
export function stateOf(part, id) {
  const replica = part[8][id];
  if (!replica) return "no answer";
  if (replica[0] === "O") return "offline";
  if (replica[0] === "L") return `${part[0] === id ? "" : "former "}leader, end ${NUMBER.format(replica[5])}`;
  const lag = lagOf(part, id);
  const state = replica[10] && replica[10] !== "Fetching" ? `${replica[10]}, ` : "";
  const out = part[4].includes(id) ? "" : "not in ISR, ";
  return `${out}${state}end ${NUMBER.format(replica[5])}${lag ? `, ${NUMBER.format(lag)} behind` : ""}`;
}

/**
 * Paint the replicas of a partition.
 * @param {HTMLCanvasElement} canvas
 * @param {Part} part
 * @param {number} width pixels
 * @param {Palette} colours
 */
export function paint(canvas, part, width, colours) {
  const ratio = devicePixelRatio || 1;
  const ids = part[3];
  const height = ids.length * LINE;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const present = ids.map((id) => part[8][id]).filter((replica) => replica !== undefined);
  const first = Math.min(...present.map((replica) => Math.max(0, replica[1])));
  const end = Math.max(first + 1, ...present.map((replica) => replica[5]));
  const across = Math.max(20, width - NAME - STATE);
  /** @param {number} offset */
  const x = (offset) => NAME + ((offset - first) / (end - first)) * across;
  ids.forEach((id, at) => paintReplica(context, part, id, at * LINE, x, colours));
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Part} part
 * @param {number} id
 * @param {number} y
 * @param {(offset: number) => number} x
 * @param {Palette} colours
 */
function paintReplica(context, part, id, y, x, colours) {
  const replica = part[8][id];
  const middle = y + LINE / 2;
  const inIsr = part[4].includes(id);
  context.fillStyle = colours.text;
  context.fillText(`${id === part[0] ? "★" : " "} ${id}`, 2, middle);
  if (!inIsr) context.fillText("✗", 44, middle);
  context.fillStyle = inIsr ? colours.dim : colours.bad;
  const edge = context.canvas.width / (devicePixelRatio || 1) - STATE + 6;
  context.fillText(stateOf(part, id), edge, middle, STATE - 8);
  if (!replica || replica[5] < 0) return;
  const [, start, local, mark, , end] = replica;
  const top = y + (LINE - BAR) / 2;
  if (local > start && start >= 0) {
    context.strokeStyle = colours.line;
    context.setLineDash([4, 2]);
    context.strokeRect(x(start) + 0.5, top + 2.5, Math.max(1, x(local) - x(start) - 1), BAR - 5);
    context.setLineDash([]);
  }
  const log = { name: "", kind: /** @type {"local"} */ ("local"), start: Math.max(start, local, 0), end, epochs: epochsOf(replica) };
  const runs = runsOf(log);
  for (const run of runs) {
    context.fillStyle = colours.epochs[run.epoch % EPOCHS] ?? colours.line;
    context.fillRect(x(run.first), top, Math.max(1, x(run.end) - x(run.first) - 0.5), BAR);
  }
  context.strokeStyle = colours.line;
  context.strokeRect(x(log.start) + 0.5, top + 0.5, Math.max(1, x(end) - x(log.start) - 1), BAR - 1);
  context.fillStyle = colours.text;
  for (const run of runs) {
    const label = `LE-${run.epoch}`;
    if (x(run.end) - x(run.first) > 7 * label.length) context.fillText(label, x(run.first) + 3, middle + 0.5);
  }
  if (mark >= 0) {
    context.fillStyle = colours.text;
    context.fillRect(x(mark) - 1, top - 2, 2, BAR + 4);
  }
}
