// Counters of a NIC as they are and as rates, and its traffic drawn.
import { Chart, Group, controls, units } from "./charts.js";
import { el, setText } from "./dom.js";
import { short, whole } from "./format.js";
import { compress, straight } from "./idle.js";
import { Table } from "./table.js";

const keep = 1800; // samples of the chart

/** flat lists the counters of api.Stat by names that are unique. */
function flat(s) {
  const out = new Map(Object.entries(s.counters));
  for (const part of ["port", "shard"]) for (const [name, v] of Object.entries(s[part])) out.set(`${part}: ${name}`, v);
  return out;
}

/** bits of port_xmit_data and port_rcv_data, which count words of four bytes. */
const word = 32;

/** Counters shows those of one NIC. */
export class Counters {
  #nic = null;
  #seen = new Map(); // by NIC: {at, values, rates, t, v}

  constructor(place, chartPlace) {
    this.all = el("input", { type: "checkbox", onchange: () => this.#show() });
    this.filter = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter counters", oninput: () => this.#show() });
    this.table = new Table({ label: "Counters", key: (r) => r.name, empty: "Nothing has been counted.", columns: [
      { name: "counter", title: "Counter", value: (r) => r.name, width: "minmax(10em, 3fr)" },
      { name: "value", title: "Value", value: (r) => r.value, text: (r) => whole(r.value), end: true, width: "minmax(6em, 2fr)" },
      { name: "rate", title: "Per second", value: (r) => r.rate, text: (r) => (r.rate ? short(r.rate) : ""), end: true, width: "minmax(5em, 1fr)" },
    ] });
    place.replaceChildren(el("div", { class: "controls" }, this.filter, el("label", {}, this.all, " also zeros")), this.table.element);
    this.group = new Group();
    this.chart = new Chart(this.group, { name: "traffic", title: "Traffic", fromZero: true, value: units.bits,
      series: [{ label: "sent", colour: "blue" }, { label: "received", colour: "orange" }] });
    this.axis = straight;
    chartPlace.replaceChildren(controls(this.group, { idle: (on) => this.#compress(on), spans: [60, 300, 0] }), this.chart.element);
  }

  choose(nic) {
    this.#nic = nic;
    this.#show();
  }

  set(stats, at) {
    for (const s of stats) this.#add(s, at);
    this.#show();
  }

  #add(s, at) {
    const old = this.#seen.get(s.nic), values = flat(s), rates = new Map();
    const now = old ?? { t: [], v: [[], []] }, since = old ? at - old.at : 0;
    if (old && since <= 0) return;
    for (const [name, v] of values) rates.set(name, old ? Math.max(v - (old.values.get(name) ?? 0), 0) / since : 0);
    if (old) {
      now.t.push(at);
      now.v[0].push(rates.get("port_xmit_data") * word);
      now.v[1].push(rates.get("port_rcv_data") * word);
      if (now.t.length > keep) for (const list of [now.t, ...now.v]) list.shift();
    }
    this.#seen.set(s.nic, Object.assign(now, { at, values, rates }));
  }

  #compress(on) {
    this.idle = on;
    this.#show();
  }

  #show() {
    const s = this.#seen.get(this.#nic);
    if (!s) return;
    const word = this.filter.value.toLowerCase(), rows = [];
    for (const [name, value] of s.values) {
      if ((value || this.all.checked) && name.toLowerCase().includes(word)) rows.push({ name, value, rate: s.rates.get(name) });
    }
    this.table.set(rows);
    if (!s.t.length) return;
    const first = s.t[0], t = s.t.map((x) => x - first);
    this.group.setAxis(this.idle ? compress(t.filter((_, i) => s.v[0][i] + s.v[1][i] > 0)) : straight);
    this.group.extent(t[0], t.at(-1));
    this.chart.set({ t, v: s.v }, `${units.bits(s.v[0].at(-1))} sent, ${units.bits(s.v[1].at(-1))} received`);
  }
}
