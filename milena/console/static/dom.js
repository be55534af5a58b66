// Elements of a page: made with attributes, listeners and children, without markup in strings.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | EventListener>} Attributes */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Return an HTML element. An attribute whose name begins with `on` is a listener; `false`, `null` and `undefined` leave
 * an attribute out, `true` is an attribute without a value.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  fill(made, attributes, children.flat());
  return made;
}

/**
 * Return an element of a drawing.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function shape(tag, attributes = {}, ...children) {
  const made = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  fill(made, attributes, children.flat());
  return made;
}

/**
 * @param {Element} made
 * @param {Attributes} attributes
 * @param {Child[]} children
 */
function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  for (const child of children) {
    if (child instanceof Node) made.append(child);
    else if (child !== false && child !== null && child !== undefined) made.append(String(child));
  }
}

/**
 * Return the element of the page with this id. Throws an Error if there is none.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`no element ${id}`);
  return found;
}

/** @type {ReturnType<typeof setTimeout> | undefined} */
let pending;

/**
 * Let the address name a place in the page, soon: browsers refuse many changes within seconds.
 * @param {string} hash such as `#step-4`
 */
export function nameInAddress(hash) {
  clearTimeout(pending);
  pending = setTimeout(() => history.replaceState(null, "", hash), 200);
}

/**
 * Return the data that the page carries in a script element of type application/json.
 * @param {string} id
 * @returns {any}
 */
export function carried(id) {
  return JSON.parse(byId(id).textContent ?? "");
}
