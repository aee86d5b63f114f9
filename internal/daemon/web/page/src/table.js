// A table of any number of rows, of which those exist that one sees.
import { el, setText } from "./dom.js";

const rowHeight = 26;
const beyond = 6; // rows above and below what one sees

/**
 * Table shows rows. Columns are {name, title, value, text, end}: value sorts, text is shown, end means that it is a
 * number. The table scrolls where there is less room than least. key tells rows apart, chosen is called with the row that the reader has chosen.
 */
export class Table {
  rows = [];
  #all = [];
  #shown = new Map(); // by place: the elements
  #sort = { column: null, down: false };
  #active = -1;

  constructor({ label, columns, key, chosen, empty = "none", least = "34em" }) {
    Object.assign(this, { columns, key, chosen, empty });
    this.heads = columns.map((c) => this.#head(c));
    this.head = el("div", { role: "row", class: "row head", "aria-rowindex": 1 }, ...this.heads);
    this.space = el("div", { role: "rowgroup", class: "space" });
    this.view = el("div", { class: "view", role: "presentation" }, this.space);
    this.element = el("div", { class: "table", role: "grid", "aria-label": label, tabindex: 0, onkeydown: (e) => this.#press(e) }, this.head, this.view);
    this.element.style.setProperty("--columns", columns.map((c) => c.width ?? "1fr").join(" "));
    this.element.style.setProperty("--least", least);
    this.view.addEventListener("scroll", () => this.#draw(), { passive: true });
    new ResizeObserver(() => this.#draw()).observe(this.view);
  }

  #head(c) {
    const b = el("button", { text: c.title, type: "button", tabindex: -1, onclick: () => this.#order(c) });
    return el("div", { role: "columnheader", class: c.end ? "end" : undefined, "aria-sort": "none" }, b);
  }

  #order(c) {
    const s = this.#sort;
    this.#sort = { column: c, down: s.column === c && !s.down };
    this.heads.forEach((h, i) =>
      h.setAttribute("aria-sort", this.columns[i] !== c ? "none" : this.#sort.down ? "descending" : "ascending"));
    this.set(this.#all);
  }

  /** set replaces the rows. What was chosen stays so. */
  set(rows) {
    this.#all = rows;
    const c = this.#sort.column;
    this.rows = c ? [...rows].sort((a, b) => this.#compare(c.value(a), c.value(b))) : rows;
    this.#active = this.rows.findIndex((r) => this.key(r) === this.current);
    this.element.setAttribute("aria-rowcount", this.rows.length + 1);
    this.space.style.height = Math.max(this.rows.length, 1) * rowHeight + "px";
    this.#draw();
  }

  #compare(a, b) {
    const d = a === b ? 0 : a === undefined || a < b ? -1 : 1;
    return this.#sort.down ? -d : d;
  }

  #draw() {
    const top = this.view.scrollTop, height = this.view.clientHeight;
    const from = Math.max(Math.floor(top / rowHeight) - beyond, 0);
    const to = Math.min(Math.ceil((top + height) / rowHeight) + beyond, this.rows.length);
    for (const [i, row] of this.#shown) {
      if (i < from || i >= to) {
        row.remove();
        this.#shown.delete(i);
      }
    }
    for (let i = from; i < to; i++) this.#fill(i);
    this.element.setAttribute("aria-activedescendant", this.#shown.get(this.#active)?.id ?? "");
    this.space.dataset.empty = this.rows.length ? "" : this.empty;
  }

  #fill(i) {
    let row = this.#shown.get(i);
    if (!row) {
      row = el("div", { role: "row", class: "row", id: crypto.randomUUID(), "aria-rowindex": i + 2, onclick: () => this.choose(i) },
        ...this.columns.map((c) => el("div", { role: "gridcell", class: c.end ? "end" : undefined })));
      row.style.transform = `translateY(${i * rowHeight}px)`;
      this.#shown.set(i, row);
      this.space.append(row);
    }
    const r = this.rows[i];
    this.columns.forEach((c, n) => {
      const cell = row.children[n];
      setText(cell, String(c.text ? c.text(r) : c.value(r) ?? ""));
      if (c.mark) cell.dataset.mark = c.mark(r);
    });
    row.setAttribute("aria-selected", i === this.#active);
  }

  /** choose chooses the row at a place. */
  choose(i) {
    if (i < 0 || i >= this.rows.length) return;
    this.current = this.key(this.rows[i]);
    this.#active = i;
    const y = i * rowHeight, v = this.view;
    if (y < v.scrollTop) v.scrollTop = y;
    if (y + rowHeight > v.scrollTop + v.clientHeight) v.scrollTop = y + rowHeight - v.clientHeight;
    this.#draw();
    this.chosen?.(this.rows[i]);
  }

  #press(e) {
    if (e.target !== this.element) return;
    const page = Math.max(Math.floor(this.view.clientHeight / rowHeight) - 1, 1), last = this.rows.length - 1;
    const to = {
      ArrowDown: this.#active + 1, ArrowUp: this.#active < 0 ? last : this.#active - 1, PageDown: this.#active + page,
      PageUp: this.#active - page, Home: 0, End: last,
    }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    this.choose(Math.max(0, Math.min(to, last)));
  }
}
