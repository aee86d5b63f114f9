// The stream of what changes. Nobody who does not look costs anything: it ends while the page is hidden.
import { events } from "./net.js";

/** Live keeps a stream of views open and tells who has asked for them. */
export class Live {
  #wanted = new Map(); // by name: functions
  #abort = null;
  #status;

  /** status is told whether there is a stream: "live", "paused", or why not. */
  constructor(status) {
    this.#status = status;
    document.addEventListener("visibilitychange", () => this.restart());
  }

  /** on has f called with a view, and its time in seconds, whenever it changes. */
  on(view, f) {
    const all = this.#wanted.get(view) ?? [];
    all.push(f);
    this.#wanted.set(view, all);
  }

  /** restart opens the stream anew, with the views that are wanted by now. */
  restart() {
    this.#abort?.abort();
    this.#abort = new AbortController();
    if (document.hidden) this.#status("paused");
    else this.#run(this.#abort.signal);
  }

  async #run(signal) {
    const views = [...this.#wanted.keys()].map((v) => "view=" + encodeURIComponent(v)).join("&");
    for (let wait = 500; !signal.aborted; wait = Math.min(2 * wait, 10_000)) {
      try {
        for await (const e of events("live?" + views, { signal })) {
          this.#status("live");
          wait = 500;
          for (const f of this.#wanted.get(e.event) ?? []) f(e.data, Number(e.id) / 1000);
        }
        if (!signal.aborted) this.#status("The daemon has ended the stream.");
      } catch (err) {
        if (signal.aborted) return;
        this.#status(err instanceof TypeError ? "The daemon does not answer." : err.message);
      }
      await new Promise((done) => setTimeout(done, wait));
    }
  }
}
