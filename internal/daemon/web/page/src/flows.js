// Flows as a passive observer sees them: what rocectl watch tells.
import { el, setText } from "./dom.js";
import { duration, short, whole } from "./format.js";
import { events } from "./net.js";
import { Table } from "./table.js";

const end = (e) => `${e.addr}:${e.qpn ?? "?"}`;
const number = (name, title, value, text) => ({ name, title, value, text: (r) => (text ?? whole)(value(r)), end: true });

const columns = [
  { name: "requester", title: "Requester", value: (f) => end(f.requester), width: "minmax(10em, 2fr)" },
  { name: "responder", title: "Responder", value: (f) => end(f.responder), width: "minmax(10em, 2fr)" },
  { name: "transport", title: "Transport", value: (f) => f.transport },
  number("rate", "Rate", (f) => f.rate_bps, (v) => short(v, "b/s")),
  number("messages", "Messages", (f) => f.messages),
  number("bytes", "Bytes", (f) => f.bytes, (v) => short(v, "B")),
  number("retx", "Again", (f) => f.requests.retransmitted + f.responses.retransmitted),
  number("naks", "NAKs", (f) => f.responses.naks.total),
  number("rnr", "RNR", (f) => f.responses.rnr_naks),
  number("cnps", "CNPs", (f) => f.cnps),
  number("rtt", "RTT", (f) => f.rtt.smoothed_ns ?? 0, (v) => (v ? duration(v / 1e9) : "–")),
];

/** flowTable returns a table for the flows of a report. */
export function flowTable(chosen) {
  return new Table({ label: "Flows", columns, key: (f) => f.serial, empty: "No RoCEv2 packet has passed.", chosen });
}

/** Flows watches the frames of one NIC while the reader wants it. */
export class Flows {
  #nic = null;
  #abort = null;

  constructor(place) {
    this.button = el("button", { type: "button", text: "Watch", onclick: () => (this.#abort ? this.stop() : this.#run()) });
    this.state = el("span", { class: "state", role: "status" });
    this.table = flowTable();
    this.table.element.hidden = true;
    place.replaceChildren(el("div", { class: "controls" }, this.button, this.state), this.table.element);
  }

  choose(nic) {
    if (nic !== this.#nic) this.stop();
    this.#nic = nic;
  }

  stop() {
    this.#abort?.abort();
  }

  async #run() {
    const abort = (this.#abort = new AbortController());
    this.button.textContent = "Stop";
    this.table.element.hidden = false;
    this.table.set([]);
    setText(this.state, "Packets are analysed as they pass.");
    try {
      for await (const e of events(`v1/flows/${encodeURIComponent(this.#nic)}`, { signal: abort.signal })) {
        if (e.event === "problem") setText(this.state, e.data.error);
        else this.#report(e.data);
      }
    } catch (err) {
      if (!abort.signal.aborted) setText(this.state, err.message);
    }
    if (this.#abort === abort) {
      this.#abort = null;
      this.button.textContent = "Watch";
    }
  }

  #report(r) {
    this.table.set(r.flows);
    setText(this.state, `${whole(r.totals.packets ?? 0)} packets${r.lost ? `, ${whole(r.lost)} unseen` : ""}`);
  }
}
