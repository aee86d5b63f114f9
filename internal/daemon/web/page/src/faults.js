// Fault rules of a NIC: shown with their hits, added, removed.
import { el, say, setText } from "./dom.js";
import { whole } from "./format.js";
import { ask } from "./net.js";

/** Faults shows the rules of one NIC; who may change something, changes them. */
export class Faults {
  #nic = null;
  #rules = new Map();

  constructor(place, right) {
    this.may = right === "change";
    this.rows = el("tbody");
    this.problem = el("p", { class: "problem", role: "alert" });
    this.rule = el("input", { type: "text", name: "rule", placeholder: "tx drop psn=+3 n=1", "aria-label": "Fault rule", spellcheck: "false", autocomplete: "off" });
    const form = el("form", { class: "controls", onsubmit: (e) => (e.preventDefault(), this.#add()) }, this.rule, el("button", { type: "submit", text: "Add rule" }),
      el("button", { type: "button", text: "Remove all", onclick: () => this.#change([]) }));
    const heads = ["Rule", "Matched", "Hit"].map((t, i) => el("th", { text: t, scope: "col", class: i ? "end" : undefined }));
    if (this.may) heads.push(el("th", { scope: "col" }, el("span", { class: "unseen", text: "Remove" })));
    place.replaceChildren(el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...heads)), this.rows),
      ...(this.may ? [form] : [el("p", { class: "hint", text: "Read-only: rules are changed with web.control in the configuration, and the token." })]), this.problem);
  }

  choose(nic) {
    this.#nic = nic;
    this.#show();
  }

  set(nic, rules) {
    this.#rules.set(nic, rules);
    if (nic === this.#nic) this.#show();
  }

  #show() {
    const rules = this.#rules.get(this.#nic) ?? [];
    while (this.rows.rows.length > rules.length) this.rows.deleteRow(-1);
    rules.forEach((r, i) => {
      const row = this.rows.rows[i] ?? this.#row(i);
      [r.rule, whole(r.matched), whole(r.hit)].forEach((text, n) => setText(row.cells[n], text));
    });
    if (!rules.length) this.rows.replaceChildren();
    this.rows.parentElement.hidden = !rules.length;
  }

  #row(i) {
    const row = el("tr", {}, el("td", { class: "code" }), el("td", { class: "end" }), el("td", { class: "end" }));
    if (this.may) row.append(el("td", {}, el("button", { type: "button", text: "×", "aria-label": `Remove rule ${i + 1}`, onclick: () => this.#remove(i) })));
    this.rows.append(row);
    return row;
  }

  async #add() {
    const rule = this.rule.value.trim();
    if (rule && (await this.#send("POST", { rules: [rule] }))) {
      this.rule.value = "";
      say("The rule is in force.");
    }
  }

  #remove(i) {
    return this.#change(this.#rules.get(this.#nic).filter((_, n) => n !== i).map((r) => r.rule));
  }

  async #change(rules) {
    if (await this.#send("POST", { rules, replace: true })) say("The rules have changed.");
  }

  async #send(method, body) {
    const nic = this.#nic;
    try {
      this.set(nic, await ask(`v1/faults/${encodeURIComponent(nic)}`, { method, body }));
      setText(this.problem, "");
      return true;
    } catch (err) {
      setText(this.problem, err.message);
      return false;
    }
  }
}
