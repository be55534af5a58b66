// Scenarios: run one step after the other in the simulation, on the page that `scenario run --html` writes, too.

import { get, post, remove } from "./requests.js";
import { act, useAnswer } from "./hooks.js";
import { ScenarioView } from "./scenario.js";
import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";

/** @typedef {{name: string, title: string, document: string | null, variants: string[]}} Scenario */
/** @typedef {{run: string, steps: number, done: number}} Started */

/** @param {{parameters: Record<string, string>}} properties */
export function ScenariosView({ parameters }) {
  const { answer, error } = useAnswer(() => get("/api/scenarios"), []);
  const [text, setText] = useState("");
  const all = /** @type {Scenario[]} */ (answer ?? []);
  const found = all.filter(({ name, title, document }) => `${name} ${title} ${document ?? ""}`.toLowerCase().includes(text.toLowerCase()));
  const chosen = all.find(({ name }) => name === parameters.scenario);
  const list = html`<nav aria-label="Scenarios" class="choices">
    <label>Filter <input data-filter type="search" onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
    <div>${found.map(({ name, title, document }) => html`<a key=${name} class="panel" aria-current=${name === parameters.scenario ? "true" : null} href=${`#/scenarios?scenario=${name}`}>
      <b>${name}</b>${document ? ` · ${document}` : ""}<br />${title}</a>`)}</div></nav>`;
  return html`<h2>Scenarios</h2>
    ${error && html`<p class="bad">✗ ${error}</p>`}
    ${chosen
      ? html`<details class="others"><summary>Other scenarios</summary>${list}</details><${Stepping} key=${chosen.name} scenario=${chosen} />`
      : html`<p class="panel">Choose a scenario. It runs in the simulation, not on this cluster.</p>${list}`}`;
}

/** @param {{scenario: Scenario}} properties */
function Stepping({ scenario }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const view = useRef(/** @type {ScenarioView | null} */ (null));
  const [variant, setVariant] = useState("");
  const [run, setRun] = useState(/** @type {Started | null} */ (null));
  const [busy, setBusy] = useState(false);
  useEffect(() => () => view.current?.close(), []);
  useEffect(() => () => void (run && remove(`/api/runs/${run.run}`).catch(() => {})), [run?.run]);
  const start = async () => {
    setBusy(true);
    const answer = await act(`Start ${scenario.name}`, post(`/api/scenarios/${scenario.name}/runs`, { variant: variant || null, step: true }), { quiet: true });
    setBusy(false);
    if (!answer) return;
    view.current?.close();
    view.current = null;
    setRun(answer.ok);
    await step(answer.ok);
  };
  /** @param {Started} started */
  const step = async (started) => {
    setBusy(true);
    const answer = await act(`Step ${started.done + 1} of ${scenario.name}`, post(`/api/runs/${started.run}/next`), { quiet: true });
    if (answer) {
      const whole = await get(`/api/runs/${started.run}`);
      show(whole);
      setRun({ ...started, done: answer.done });
    }
    setBusy(false);
  };
  /** @param {any} whole */
  const show = (whole) => {
    if (view.current) {
      Object.assign(view.current.run, whole);
      view.current.refresh();
      view.current.show(whole.steps.length - 1);
    } else if (place.current) view.current = new ScenarioView(place.current, whole, { address: false });
  };
  return html`<div class="stepping">
    <div class="bar panel">
      <b>${scenario.name}</b>
      ${scenario.variants.length > 0 && html`<label>Variant <select value=${variant} onChange=${(/** @type {any} */ event) => setVariant(event.target.value)}>
        <option value="">the document's</option>${scenario.variants.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`}
      <button type="button" disabled=${busy} onClick=${start}>${run ? "Start again" : "Start"}</button>
      ${run && html`<button type="button" disabled=${busy || run.done >= run.steps} onClick=${() => step(run)}>Next step</button>
        <span role="status">${run.done} of ${run.steps} steps shown</span>`}
      ${busy && html`<span class="dim" role="status">running</span>`}
    </div>
    <div ref=${place}></div>
  </div>`;
}
