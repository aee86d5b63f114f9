// What a trace has told, as charts want it: times and values in columns.

/** columnsOf are the series of each chart. */
export const columnsOf = {
  sequence: ["sent", "ack", "sack", "again", "timeout"],
  responses: ["sent", "ack", "sack", "again", "timeout"],
  window: ["window", "responses"],
  rate: ["rate", "responses"],
  rtt: ["rtt", "responses"],
  degree: ["degree", "responses"],
  bytes: ["bytes"],
};

const keep = 200_000; // points of a chart, of a trace that grows

/** Unwrap counts PSNs, of 24 bits, on from the first one. */
class Unwrap {
  #last = null;
  #at = 0;

  get begun() {
    return this.#last !== null;
  }

  next(psn) {
    if (this.#last === null) this.#last = psn;
    this.#at += ((psn - this.#last) << 8) >> 8;
    this.#last = psn;
    return Math.max(this.#at, 0);
  }
}

/** Store holds a trace. Times are seconds since the first packet: a queue pair may have been connected long before. */
export class Store {
  start = null;
  end = null;
  events = 0;
  count = { sent: 0, again: 0, ack: 0, timeout: 0, received: 0 };
  times = []; // of all events: where nothing happens is idle
  skipped = []; // {from, to}: where events were left out
  version = 0;
  #zero = null; // when that was
  #psns = { sequence: new Unwrap(), responses: new Unwrap() };

  /** bounded says that old points are given up for new ones. */
  constructor(bounded) {
    this.bounded = bounded;
    this.charts = Object.fromEntries(Object.entries(columnsOf).map(([name, columns]) => [name, { t: [], v: columns.map(() => []) }]));
  }

  /** add takes one line of a trace (trace.Record). */
  add(r) {
    if (r.event === "start") this.start = r.start;
    else if (r.event === "end") this.end = r;
    else this.#event(r);
    this.version++;
  }

  #event(r) {
    const packet = r.event !== "limits" && r.event !== "footprint";
    if (r.event === "skipped") return this.#skip((r.t - (this.#zero ?? r.t)) / 1e9);
    if (packet) this.#zero ??= r.t;
    const t = this.#zero === null ? 0 : (r.t - this.#zero) / 1e9;
    this.events++;
    if (r.psn !== undefined && r.event !== "received") this.#sequence(t, r);
    const of = r.response ? 1 : 0;
    switch (r.event) {
      case "limits":
        if (r.window !== undefined) this.#put("window", t, of, r.window);
        if (r.rate !== undefined) this.#put("rate", t, of, r.rate);
        break;
      case "footprint":
        this.#put("bytes", t, 0, r.bytes ?? 0);
        break;
      case "received":
        this.count.received++;
        this.#put("degree", t, of, r.degree ?? 0);
        break;
      case "ack":
        if (r.rtt_ns) this.#put("rtt", t, of, r.rtt_ns / 1e9);
        break;
    }
    if (packet) this.times.push(t);
    if (this.bounded && this.times.length > keep * 1.25) this.times.splice(0, this.times.length - keep);
  }

  #skip(to) {
    this.skipped.push({ from: this.times.at(-1) ?? to, to });
    this.times.push(to);
  }

  #sequence(t, r) {
    const chart = r.response ? "responses" : "sequence", u = this.#psns[chart];
    if (r.event !== "sent" && !u.begun) return;
    const at = u.next(r.psn);
    switch (r.event) {
      case "sent":
        this.count.sent++;
        if (r.rtx) this.count.again++;
        this.#put(chart, t, r.rtx ? 3 : 0, at);
        break;
      case "ack":
        this.count.ack++;
        this.#put(chart, t, 1, at);
        if (r.sack !== undefined) this.#put(chart, t, 2, u.next(r.sack));
        break;
      case "timeout":
        this.count.timeout++;
        this.#put(chart, t, 4, at);
    }
  }

  #put(chart, t, column, value) {
    const c = this.charts[chart];
    c.t.push(t);
    c.v.forEach((values, i) => values.push(i === column ? value : null));
    if (this.bounded && c.t.length > keep * 1.25) {
      const drop = c.t.length - keep;
      c.t.splice(0, drop);
      for (const values of c.v) values.splice(0, drop);
    }
  }
}
