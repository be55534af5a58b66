// A list that has elements only for the rows in view, so that thousands of rows stay cheap.

import { element } from "./dom.js";

const SPARE = 8;

/** Rows of equal height in a box that scrolls. Rows outside of the view have no elements. */
export class LongList {
  /**
   * @param {object} options
   * @param {string} options.label what the list contains, for screen readers
   * @param {number} options.height pixels of a row
   * @param {(index: number) => HTMLElement} options.row makes the element of a row
   * @param {(index: number) => void} [options.chosen] called when a row is clicked, or chosen with Enter
   */
  constructor({ label, height, row, chosen }) {
    this.count = 0;
    this.current = -1;
    this._height = height;
    this._row = row;
    this._first = -1;
    this._last = -1;
    /** @type {Map<number, HTMLElement>} */
    this._rows = new Map();
    this._body = element("div", { class: "rows" });
    this.element = element("div", { class: "long-list", tabindex: 0, "aria-label": label }, this._body);
    this.element.setAttribute("role", chosen === undefined ? "list" : "listbox");
    this._role = chosen === undefined ? "listitem" : "option";
    this.element.addEventListener("scroll", () => this._draw(false), { passive: true });
    new ResizeObserver(() => this._draw(false)).observe(this.element);
    if (chosen !== undefined) this._listen(chosen);
  }

  /** @param {(index: number) => void} chosen */
  _listen(chosen) {
    this._body.addEventListener("click", (event) => {
      const row = event.target instanceof Element ? event.target.closest("[data-index]") : null;
      if (row instanceof HTMLElement) chosen(Number(row.dataset.index));
    });
    this.element.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step === undefined) return;
      const next = Math.min(Math.max(this.current + step, 0), this.count - 1);
      if (next !== this.current && this.count > 0) chosen(next);
      event.preventDefault();
      event.stopPropagation();
    });
  }

  /**
   * Draw the list again with this many rows.
   * @param {number} count
   */
  show(count) {
    this.count = count;
    this._body.style.height = `${count * this._height}px`;
    this._draw(true);
  }

  /**
   * Mark a row as the current one and bring it into view.
   * @param {number} index
   */
  choose(index) {
    this.current = index;
    const top = index * this._height;
    const box = this.element;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + this._height > box.scrollTop + box.clientHeight) box.scrollTop = top + this._height - box.clientHeight;
    this._draw(true);
  }

  /** @param {boolean} always also if the rows in view are the same */
  _draw(always) {
    const first = Math.max(0, Math.floor(this.element.scrollTop / this._height) - SPARE);
    const seen = Math.ceil((this.element.clientHeight || 600) / this._height);
    const last = Math.min(this.count, first + seen + 2 * SPARE);
    if (!always && first === this._first && last === this._last) return;
    [this._first, this._last] = [first, last];
    if (always) {
      this._body.replaceChildren();
      this._rows.clear();
    }
    for (const [index, row] of this._rows) {
      if (index >= first && index < last) continue;
      row.remove();
      this._rows.delete(index);
    }
    // Rows that stay in view stay in the page: to take them out and in again would cost a layout of each.
    /** @type {HTMLElement | null} */
    let next = null;
    for (let index = last - 1; index >= first; index--) {
      const row = this._rows.get(index) ?? this._made(index);
      if (row.parentElement !== this._body) this._body.insertBefore(row, next);
      this._rows.set(index, row);
      next = row;
    }
    const current = this._rows.get(this.current);
    if (current !== undefined && this._role === "option") this.element.setAttribute("aria-activedescendant", current.id);
    else this.element.removeAttribute("aria-activedescendant");
  }

  /** @param {number} index */
  _made(index) {
    const row = this._row(index);
    row.style.top = `${index * this._height}px`;
    row.style.height = `${this._height}px`;
    row.setAttribute("role", this._role);
    row.setAttribute("aria-setsize", String(this.count));
    row.setAttribute("aria-posinset", String(index + 1));
    if (this._role === "option") {
      row.id = `${this._prefix()}-${index}`;
      row.dataset.index = String(index);
      row.setAttribute("aria-selected", String(index === this.current));
    }
    return row;
  }

  _prefix() {
    return (this.element.getAttribute("aria-label") ?? "list").replace(/\W+/g, "-");
  }
}
