// Messages about what the user did: the last few, read aloud by screen readers, errors until they are dismissed.

import { html, useEffect, useState } from "./vendor/htm-preact.js";

const SHOWN_MS = 6000;
const MOST = 4;

/** @typedef {{id: number, text: string, error: boolean}} Notice */

/** @type {(notice: Notice) => void} */
let show = () => {};
let last = 0;

/**
 * Show a message.
 * @param {string} text
 * @param {boolean} error
 */
export function notify(text, error) {
  last += 1;
  show({ id: last, text, error });
}

export function Notices() {
  const [notices, setNotices] = useState(/** @type {Notice[]} */ ([]));
  /** @param {number} id */
  const dismiss = (id) => setNotices((all) => all.filter((one) => one.id !== id));
  useEffect(() => {
    show = (notice) => {
      setNotices((all) => [...all, notice].slice(-MOST));
      if (!notice.error) setTimeout(() => dismiss(notice.id), SHOWN_MS);
    };
  }, []);
  return html`<div class="notices" role="status" aria-live="polite">
    ${notices.map((one) => html`<p key=${one.id} class=${one.error ? "notice bad" : "notice"}>
      ${one.error ? "✗ " : "✓ "}${one.text} <button type="button" onClick=${() => dismiss(one.id)}>Dismiss</button></p>`)}
  </div>`;
}
