// Queue pairs: a table of all of a NIC, and what is known of one.
import { el, setText } from "./dom.js";
import { count, number, short } from "./format.js";
import { Table } from "./table.js";
import { LiveTrace } from "./trace.js";

const column = (name, title, value, more = {}) => ({ name, title, value: (r) => value(r.qp), end: true, ...more });

const columns = [
  column("qpn", "QP", (q) => q.qpn, { text: (r) => number(r.qp.qpn), width: "minmax(11.5em, 1.3fr)" }),
  column("type", "Service", (q) => q.type, { end: false }),
  column("state", "State", (q) => q.state, { end: false, mark: (r) => r.qp.state }),
  column("peer", "Peer", (q) => q.peer ?? "", { end: false, width: "minmax(9em, 2fr)" }),
  column("dest_qpn", "Peer's QP", (q) => q.dest_qpn, { text: (r) => (r.qp.dest_qpn ? number(r.qp.dest_qpn) : ""), width: "minmax(11.5em, 1.3fr)" }),
  column("profile", "Transport", (q) => q.profile ?? "", { end: false }),
  column("cwnd_bytes", "Window", (q) => q.cwnd_bytes, { text: (r) => (r.qp.cwnd_bytes ? short(r.qp.cwnd_bytes, "B") : "–") }),
  column("rate_bps", "Rate", (q) => q.rate_bps, { text: (r) => (r.qp.rate_bps ? short(r.qp.rate_bps, "b/s") : "–") }),
  { name: "pid", title: "PID", value: (r) => r.pid, end: true },
];

const withToken = "With its token, this page also shows PSNs, graphs, traces, captures, flows and process IDs: rocectl page prints the address.";

const failing = new Set(["completion_error", "qp_fatal", "qp_request_error", "qp_access_error"]);

/** QPs shows the queue pairs of a NIC. */
export class QPs {
  #nic = null;
  #all = [];
  #traces = new Map();
  #failures = new Map(); // by NIC and number: why a queue pair failed

  constructor(place, detail, right) {
    Object.assign(this, { detail, right });
    this.filter = el("input", { type: "search", placeholder: "Filter: number, peer, state …", "aria-label": "Filter queue pairs", oninput: () => this.#show() });
    this.count = el("span", { class: "state", role: "status" });
    this.table = new Table({ label: "Queue pairs", least: "90em", columns: right === "look" ? columns.slice(0, -1) : columns, key: (r) => r.qp.qpn, empty: "No queue pair.", chosen: (r) => this.#choose(r) });
    place.replaceChildren(el("div", { class: "controls" }, this.filter, this.count), this.table.element);
  }

  /** choose shows another NIC. */
  choose(nic) {
    this.#nic = nic;
    this.detail.replaceChildren(el("p", { class: "hint", text: "Choose a queue pair in the table to see how it behaves." + (this.right === "look" ? " " + withToken : "") }));
    this.#show();
  }

  set(resources) {
    this.#all = resources;
    for (const r of resources) if (["RESET", "INIT", "RTR"].includes(r.qp.state)) this.#failures.delete(r.nic + " " + r.qp.qpn); // a new one
    this.#show();
  }

  #show() {
    const here = this.#all.filter((r) => r.nic === this.#nic), words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (r) => `${number(r.qp.qpn)} ${r.qp.type} ${r.qp.state} ${r.qp.peer ?? ""} ${r.qp.dest_qpn ? number(r.qp.dest_qpn) : ""} ${r.qp.profile ?? ""}`.toLowerCase();
    const rows = words.length ? here.filter((r) => words.every((w) => text(r).includes(w))) : here;
    setText(this.count, rows.length === here.length ? count(here.length, "queue pair") : `${rows.length} of ${count(here.length, "queue pair")}`);
    this.table.set(rows);
    const r = here.find((r) => r.qp.qpn === this.qpn);
    if (r) this.#facts(r);
    else this.#gone();
  }

  /** happened takes an event. */
  happened(e) {
    if (!failing.has(e.event)) return;
    this.#failures.set(e.nic + " " + e.number, e.status ?? e.event.replaceAll("_", " "));
    if (this.#failures.size > 1000) this.#failures.delete(this.#failures.keys().next().value);
    this.#show();
  }

  #gone() {
    if (!this.facts) return;
    const why = this.#failures.get(this.#nic + " " + this.qpn);
    setText(this.facts, `Its program has destroyed this queue pair${why ? ` after an error: ${why}` : ", without an error"}.`);
  }

  #choose(r) {
    const same = this.qpn === r.qp.qpn && this.facts?.isConnected;
    this.qpn = r.qp.qpn;
    if (same) return this.#facts(r);
    this.facts = el("p", { class: "state" });
    const parts = [el("h3", { text: `Queue pair ${number(r.qp.qpn)}` }), this.facts];
    if (r.qp.type === "UD") parts.push(el("p", { class: "hint", text: "Datagrams have no connection to draw." }));
    else if (this.right === "look") parts.push(el("p", { class: "hint", text: withToken }));
    else parts.push(this.#trace(r).element);
    this.detail.replaceChildren(...parts);
    this.#facts(r);
  }

  #trace(r) {
    const id = r.nic + " " + r.qp.qpn;
    if (!this.#traces.has(id)) this.#traces.set(id, new LiveTrace(r.nic, r.qp.qpn));
    return this.#traces.get(id);
  }

  #facts(r) {
    if (!this.facts) return;
    const q = r.qp, psns = q.sq_psn === undefined ? "" : `, PSNs ${q.sq_psn} and ${q.rq_psn}`;
    const why = q.error ?? (q.state === "ERR" ? this.#failures.get(r.nic + " " + q.qpn) ?? "set by its program" : "");
    setText(this.facts, `${q.type} ${q.state}${why ? ` (${why})` : ""}${q.peer ? ` with ${q.peer} QP ${number(q.dest_qpn)}, path MTU ${q.path_mtu}` : ""}${psns}`);
  }
}
