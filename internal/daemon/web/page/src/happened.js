// Asynchronous events, the newest first.
import { el } from "./dom.js";
import { number } from "./format.js";

const keep = 200;

/** Happened lists events. */
export class Happened {
  constructor(place) {
    this.none = el("p", { class: "hint", text: "None since the page was opened." });
    this.list = el("ol", { class: "log", reversed: true, role: "log", "aria-label": "Asynchronous events" });
    place.replaceChildren(this.none, this.list);
  }

  add(e) {
    this.none.hidden = true;
    const time = new Date(e.time).toLocaleTimeString("en-GB") + "." + String(new Date(e.time).getMilliseconds()).padStart(3, "0");
    this.list.prepend(el("li", { "data-event": e.event }, el("time", { datetime: e.time, text: time }), ` ${e.nic} ${e.object} ${e.object === "qp" ? number(e.number) : e.number}: ${e.event.replaceAll("_", " ")}${e.status ? `, ${e.status}` : ""}`));
    while (this.list.childElementCount > keep) this.list.lastElementChild.remove();
  }
}
