// What the views share: drawing again when the store changes, and the outcome of a request.

import { notify } from "./notices.js";
import { useEffect, useLayoutEffect, useReducer, useState } from "./vendor/htm-preact.js";

/** @typedef {import("./store.js").Store} Store */

/**
 * Draw the component again when one of these parts of the state changes.
 * @param {Store} store
 * @param {(keyof import("./store.js").Changes)[]} parts
 */
export function useChanges(store, parts) {
  const [, again] = useReducer((/** @type {number} */ count) => count + 1, 0);
  // At once, not after the next frame: a change in between would be missed.
  useLayoutEffect(() => store.listen((changes) => {
    if (changes.full || parts.some((part) => changes[part])) again(0);
  }), [store]);
}

/**
 * The server's time in ms; the component is drawn again each second.
 * @param {Store} store
 */
export function useClock(store) {
  const [now, setNow] = useState(store.now());
  useEffect(() => {
    const ticks = setInterval(() => setNow(store.now()), 1000);
    return () => clearInterval(ticks);
  }, [store]);
  return Math.max(now, store.now());
}

/**
 * The answer of a request that is made when the inputs change.
 * @template T
 * @param {() => Promise<T> | null} ask null: nothing to ask
 * @param {unknown[]} inputs
 * @returns {{answer: T | null, error: string, again: () => void}}
 */
export function useAnswer(ask, inputs) {
  const [result, setResult] = useState(/** @type {{answer: T | null, error: string}} */ ({ answer: null, error: "" }));
  const [asked, setAsked] = useState(0);
  useEffect(() => {
    let wanted = true;
    const answer = ask();
    if (answer === null) setResult({ answer: null, error: "" });
    else {
      answer.then(
        (value) => wanted && setResult({ answer: value, error: "" }),
        (error) => wanted && setResult({ answer: null, error: String(error.message) }),
      );
    }
    return () => void (wanted = false);
  }, [...inputs, asked]);
  return { ...result, again: () => setAsked((count) => count + 1) };
}

/**
 * Wait for a change and show its outcome as a message.
 * @template T
 * @param {string} what done, in words, for the message
 * @param {Promise<T>} request
 * @param {{quiet?: boolean}} [options] `quiet`: show a failure only
 * @returns {Promise<T | null>} null: it failed
 */
export async function act(what, request, { quiet = false } = {}) {
  try {
    const answer = await request;
    if (!quiet) notify(what, false);
    return answer;
  } catch (error) {
    notify(`${what}: ${/** @type {Error} */ (error).message}`, true);
    return null;
  }
}
