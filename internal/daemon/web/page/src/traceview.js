// The charts of a trace, stored or growing.
import { Chart, Group, controls, units } from "./charts.js";
import { el } from "./dom.js";
import { duration, whole } from "./format.js";
import { compress, straight } from "./idle.js";

const sequence = [
  { label: "sent", colour: "blue", mark: "dot" }, { label: "cumulative ACK", colour: "green" },
  { label: "SACK", colour: "violet", mark: "peak" }, { label: "sent again", colour: "red", mark: "cross" },
  { label: "timeout", colour: "ink", mark: "post" },
];
const both = (label, more = {}) => [{ label, colour: "blue", ...more }, { label: "of responses", colour: "orange", ...more }];

const kinds = [
  { name: "sequence", title: "PSNs over time", series: sequence, value: units.psn, height: 270 },
  { name: "responses", title: "PSNs of READ responses", series: sequence, value: units.psn },
  { name: "window", title: "Window", series: both("window"), value: units.bytes, fromZero: true },
  { name: "rate", title: "Rate", series: both("rate"), value: units.bits, fromZero: true },
  { name: "rtt", title: "Round-trip time", series: both("RTT", { mark: "dot" }), value: units.seconds, fromZero: true },
  { name: "degree", title: "Out-of-order degree", series: both("packets ahead", { mark: "dot" }), value: units.packets, fromZero: true },
  { name: "bytes", title: "Reorder state", series: [{ label: "bytes", colour: "blue" }], value: units.bytes, fromZero: true },
];

/** TraceView shows a Store. */
export class TraceView {
  #idle = false;
  #drawn = -1;

  /** spans are the seconds that can be shown of a trace that grows. */
  constructor(store, spans) {
    this.store = store;
    this.group = new Group();
    this.charts = kinds.map((k) => new Chart(this.group, k));
    this.element = el("div", { class: "charts" }, controls(this.group, { idle: (on) => this.#compress(on), spans }), ...this.charts.map((c) => c.element));
    for (const c of this.charts) c.element.hidden = true;
  }

  #compress(on) {
    this.#idle = on;
    this.#drawn = -1;
    this.draw();
  }

  /** draw shows what has been added. */
  draw() {
    const s = this.store;
    if (this.#drawn === s.version || !s.times.length) return;
    this.#drawn = s.version;
    this.group.setAxis(this.#idle ? compress(s.times, s.skipped) : straight);
    this.group.skipped = s.skipped;
    this.group.extent(s.times[0], s.times[s.times.length - 1]);
    for (const c of this.charts) c.set(this.#data(c), this.#words(c));
  }

  // #data are those of a chart. Lines go on to the end.
  #data(c) {
    let { t, v } = this.store.charts[c.name];
    const end = this.store.times.at(-1);
    if (t.length && t.at(-1) < end) {
      t = [...t, end];
      v = v.map((values, i) => [...values, c.series[i].mark ? null : (values.findLast((x) => x !== null) ?? null)]);
    }
    return { t, v };
  }

  #words(c) {
    const { t, v } = this.store.charts[c.name], n = this.store.count;
    if (c.name === "sequence") {
      return `${whole(n.sent)} sent, ${whole(n.again)} of them again, ${whole(n.timeout)} timeouts, in ${duration(this.store.times.at(-1) - this.store.times[0])}`;
    }
    let i = t.length - 1;
    while (i >= 0 && v[0][i] === null) i--;
    return i < 0 ? "" : "last " + c.value(v[0][i]);
  }
}
