// The keys of the console.

import { html, useEffect, useRef } from "./vendor/htm-preact.js";

const KEYS = [
  ["1 to 7", "the views, from left to right"],
  ["/", "to the filter of the view"],
  ["↑ ↓", "in a list: the row before or after"],
  ["Tab", "to the next control"],
  ["Esc", "closes this"],
  ["?", "this help"],
];

/** @param {{close: () => void}} properties */
export function Help({ close }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => dialog.current?.showModal(), []);
  return html`<dialog ref=${dialog} onClose=${close} aria-labelledby="keys">
    <h2 id="keys">Keys</h2>
    <table><tbody>${KEYS.map(([key, about]) => html`<tr key=${key}><th scope="row"><kbd>${key}</kbd></th><td>${about}</td></tr>`)}</tbody></table>
    <form method="dialog"><button>Close</button></form>
  </dialog>`;
}
