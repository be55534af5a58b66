// The console: its header, the choice of a view by the address, keys, and messages.

import { byId } from "./dom.js";
import { FaultsView } from "./faults.js";
import { GroupsView } from "./groups.js";
import { Help } from "./help.js";
import { Notices } from "./notices.js";
import { Overview } from "./overview.js";
import { RecordsView } from "./records.js";
import { ScenariosView } from "./scenarios.js";
import { Store } from "./store.js";
import { TierView } from "./tier.js";
import { TransactionsView } from "./transactions.js";
import { h, html, render, useEffect, useState } from "./vendor/htm-preact.js";
import { useChanges } from "./hooks.js";

/** @typedef {import("./store.js").Store} TheStore */

/** The views in the order of their keys 1 to 7. @type {[string, string, any][]} */
const VIEWS = [
  ["overview", "Overview", Overview],
  ["groups", "Groups", GroupsView],
  ["transactions", "Transactions", TransactionsView],
  ["tier", "Tier", TierView],
  ["records", "Records", RecordsView],
  ["faults", "Faults", FaultsView],
  ["scenarios", "Scenarios", ScenariosView],
];

const CONNECTIONS = {
  loading: "◌ loading",
  live: "● live",
  lost: "✗ no connection, trying again",
  login: "✗ not logged in",
};

/** The name and the parameters in the address: `#/records?topic=orders`. */
function place() {
  const [path = "", parameters = ""] = location.hash.replace(/^#\//, "").split("?");
  const known = VIEWS.some(([name]) => name === path);
  return { name: known ? path : "overview", parameters: Object.fromEntries(new URLSearchParams(parameters)) };
}

/** @param {EventTarget | null} target whether keys typed there are text */
function typing(target) {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName));
}

/** @param {{store: TheStore}} properties */
function App({ store }) {
  const [where, setWhere] = useState(place);
  const [help, setHelp] = useState(false);
  useChanges(store, ["nodes"]);
  useEffect(() => {
    const moved = () => {
      const to = place();
      setWhere((former) => {
        if (former.name !== to.name) byId("view").focus({ preventScroll: true });
        return to;
      });
    };
    /** @param {KeyboardEvent} event */
    const pressed = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
      const view = VIEWS[Number(event.key) - 1];
      if (view) location.hash = `#/${view[0]}`;
      else if (event.key === "?") setHelp(true);
      else if (event.key === "/") document.querySelector(/** @type {any} */ ("[data-filter]"))?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("hashchange", moved);
    addEventListener("keydown", pressed);
    return () => {
      removeEventListener("hashchange", moved);
      removeEventListener("keydown", pressed);
    };
  }, []);
  const View = /** @type {[string, string, any]} */ (VIEWS.find(([name]) => name === where.name))[2];
  return html`
    <a class="skip" href="#view" onClick=${skip}>Skip to the view</a>
    <${Header} store=${store} name=${where.name} openHelp=${() => setHelp(true)} />
    <main id="view" tabindex="-1">${content(store, View, where.parameters)}</main>
    <${Notices} />
    ${help && html`<${Help} close=${() => setHelp(false)} />`}
  `;
}

/** @param {any} event */
function skip(event) {
  event.preventDefault();
  byId("view").focus();
}

/** @param {TheStore} store @param {any} View @param {Record<string, string>} parameters */
function content(store, View, parameters) {
  if (store.connection === "login") {
    return html`<section class="panel"><h2>Not logged in</h2>
      <p>Open the link that <code>milena up --console</code> printed. It works once, within ten minutes; <code>milena console</code> prints another.</p></section>`;
  }
  if (!store.state) return html`<p class="panel">Waiting for the state of the cluster.</p>`;
  return h(View, { store, parameters });
}

/** @param {{store: TheStore, name: string, openHelp: () => void}} properties */
function Header({ store, name, openHelp }) {
  const cluster = store.state?.cluster;
  const state = /** @type {keyof typeof CONNECTIONS} */ (store.connection);
  return html`<header class="top">
    <h1>Milena</h1>
    <nav aria-label="Views">
      ${VIEWS.map(([view, title], at) => html`<a key=${view} href=${`#/${view}`} aria-current=${view === name ? "page" : null}
        aria-keyshortcuts=${at + 1}>${title}</a>`)}
    </nav>
    <span class=${state === "live" ? "good" : "bad"} role="status" data-connection=${state}>${CONNECTIONS[state]}</span>
    <span class="dim code">${cluster?.bootstrap}</span>
    <button type="button" onClick=${openHelp} aria-keyshortcuts="?">Keys <kbd>?</kbd></button>
    ${cluster?.limits && html`<p class="limits">${cluster.limits}</p>`}
  </header>`;
}

const store = new Store();
const app = byId("app");
app.replaceChildren();
render(h(App, { store }), app);
void store.start();
