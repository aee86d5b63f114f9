// NICs, their ports, and which of them the page is about.
import { el, setText } from "./dom.js";

const facts = [
  ["State", (l) => l.state + (l.reason ? ": " + l.reason : "")], ["Port", (l) => [l.port, l.device, l.mode].filter(Boolean).join(", ")],
  ["Addresses", (l) => l.gids.filter((g) => g !== "::").join(", ")], ["MAC", (l) => l.mac], ["MTU", (l) => `${l.mtu}, path ${l.active_mtu}`],
  ["Transport", (l) => l.profile || "rc"], ["Congestion control", (l) => l.congestion?.algorithm ?? "none"],
  ["Verbs devices", (l) => l.devices.map((d) => d.name).join(", ")], ["Super-frames", (l) => (l.segments ? `${l.segments} packets` : "no")],
  ["Polls for", (l) => l.poll], ["Clients", (l) => l.clients], ["Overruns", (l) => l.overruns],
];

/** NICs shows a tab for each NIC and the facts of one. */
export class NICs {
  #tabs = new Map();
  #links = [];
  current = null;

  constructor(place, chosen) {
    this.chosen = chosen;
    this.bar = el("div", { role: "tablist", "aria-label": "NICs", class: "tabs", onkeydown: (e) => this.#press(e) });
    this.values = facts.map(() => el("dd"));
    this.list = el("dl", { class: "facts", role: "tabpanel", "aria-label": "NIC" });
    facts.forEach(([name], i) => this.list.append(el("div", {}, el("dt", { text: name }), this.values[i])));
    place.replaceChildren(this.bar, this.list);
  }

  set(links) {
    this.#links = links;
    for (const l of links) this.#tab(l);
    if (!this.current && links.length) this.choose(links[0].name);
    this.#show();
  }

  #tab(l) {
    let tab = this.#tabs.get(l.name);
    if (!tab) {
      tab = el("button", { type: "button", role: "tab", onclick: () => this.choose(l.name) });
      this.#tabs.set(l.name, tab);
      this.bar.append(tab);
    }
    setText(tab, l.name);
    tab.dataset.state = l.state;
    tab.setAttribute("aria-label", `${l.name}, ${l.state}`);
  }

  #press(e) {
    const d = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (!d) return;
    const names = [...this.#tabs.keys()], to = names[(names.indexOf(this.current) + d + names.length) % names.length];
    this.choose(to);
    this.#tabs.get(to).focus();
  }

  choose(name) {
    this.current = name;
    for (const [n, tab] of this.#tabs) {
      tab.setAttribute("aria-selected", n === name);
      tab.tabIndex = n === name ? 0 : -1;
    }
    this.#show();
    this.chosen(name);
  }

  #show() {
    const l = this.#links.find((l) => l.name === this.current);
    if (l) facts.forEach(([, f], i) => setText(this.values[i], String(f(l))));
  }
}
