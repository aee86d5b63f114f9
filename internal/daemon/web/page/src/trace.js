// A trace of a queue pair that grows: started, shown, stopped, stored.
import { el, save, say } from "./dom.js";
import { count, whole } from "./format.js";
import { lines } from "./net.js";
import { Store } from "./store.js";
import { TraceView } from "./traceview.js";

const redraw = 250; // ms
const thin = 20_000; // events a second that are looked at
const most = 256 << 20; // characters that are kept to be stored

/** LiveTrace shows one queue pair. */
export class LiveTrace {
  #abort = null;
  #text = [];
  #length = 0;

  constructor(nic, qp) {
    this.path = `v1/trace/${encodeURIComponent(nic)}/${qp}`;
    this.name = `${nic}-${qp}`;
    this.start = el("button", { type: "button", text: "Start trace", onclick: () => (this.#abort ? this.stop() : this.run()) });
    this.whole = el("input", { type: "checkbox" });
    this.keep = el("button", { type: "button", text: "Download", disabled: true, onclick: () => save(`${this.name}.jsonl`, new Blob(this.#text)) });
    this.state = el("span", { class: "state", role: "status" });
    this.place = el("div");
    this.element = el("div", { class: "trace" }, el("div", { class: "controls" }, this.start, this.keep,
      el("label", { title: "costs throughput where there are many packets" }, this.whole, " every packet"), this.state), this.place);
  }

  async run() {
    const abort = (this.#abort = new AbortController());
    const store = new Store(true), view = new TraceView(store, [5, 1, 30, 0]);
    this.store = store;
    this.#text = [];
    this.#length = 0;
    this.place.replaceChildren(view.element);
    this.start.textContent = "Stop trace";
    this.keep.disabled = true;
    this.whole.disabled = true;
    const timer = setInterval(() => this.#show(view), redraw);
    const path = this.whole.checked ? this.path : this.path + "?most=" + thin;
    let ended = "The queue pair has ended.";
    try {
      for await (const some of lines(path, { method: "POST", signal: abort.signal })) for (const line of some) this.#line(line);
    } catch (err) {
      ended = abort.signal.aborted ? "Stopped." : err.message;
    }
    clearInterval(timer);
    this.#show(view);
    this.#abort = null;
    this.start.textContent = "Start trace";
    this.keep.disabled = !this.#text.length;
    this.whole.disabled = false;
    this.state.textContent = `${ended} ${count(store.events, "event", whole(store.events))}${store.end?.lost ? `, ${whole(store.end.lost)} left out` : ""}.`;
    say(this.state.textContent);
  }

  #line(line) {
    this.store.add(JSON.parse(line));
    if (this.#length + line.length < most) {
      this.#text.push(line + "\n");
      this.#length += line.length;
    }
  }

  #show(view) {
    view.draw();
    this.state.textContent = count(this.store.events, "event", whole(this.store.events));
  }

  stop() {
    this.#abort?.abort();
  }
}
