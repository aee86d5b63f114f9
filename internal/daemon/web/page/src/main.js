// The live page of roced.
import { captureControls } from "./capture.js";
import { Counters } from "./counters.js";
import { section, say, setText } from "./dom.js";
import { Faults } from "./faults.js";
import { showFile } from "./file.js";
import { Flows } from "./flows.js";
import { Happened } from "./happened.js";
import { Live } from "./live.js";
import { ask, takeToken } from "./net.js";
import { NICs } from "./nics.js";
import { QPs } from "./qps.js";
import { startTheme } from "./theme.js";

const status = document.getElementById("status");

/** connection shows whether the page is up to date. */
function connection(text) {
  if (status.textContent === text) return;
  status.textContent = text;
  status.dataset.state = text;
  if (text !== "live" && text !== "paused") say(text);
}

function watchDaemon(about) {
  const live = new Live(connection), right = about.right;
  const parts = { qps: new QPs(section("qps"), section("qp"), right), counters: new Counters(section("counters"), section("traffic")), faults: new Faults(section("faults"), right) };
  const captures = new Map(), place = right === "look" ? null : section("capture");
  if (place) parts.flows = new Flows(section("flows"));
  const known = new Set();
  const nics = new NICs(section("nics"), (name) => {
    for (const p of Object.values(parts)) p.choose(name);
    if (!captures.has(name) && place) captures.set(name, captureControls(name));
    place?.replaceChildren(captures.get(name));
  });
  const happened = new Happened(section("events"));
  live.on("links", (links) => {
    nics.set(links);
    const fresh = links.filter((l) => !known.has(l.name));
    for (const l of fresh) {
      known.add(l.name);
      live.on("faults/" + l.name, (rules) => parts.faults.set(l.name, rules));
    }
    if (fresh.length) live.restart();
  });
  live.on("res/qp", (resources) => parts.qps.set(resources));
  live.on("stat", (stats, at) => parts.counters.set(stats, at));
  live.on("events", (e) => {
    happened.add(e);
    parts.qps.happened(e);
  });
  live.restart();
}

async function start() {
  takeToken();
  startTheme(document.getElementById("theme"));
  const about = await ask("about");
  setText(document.getElementById("version"), about.version);
  if (about.file) {
    setText(document.getElementById("file"), about.file);
    document.title = about.file + " – roced";
    connection(about.right === "none" ? "The token is missing: open the address that rocectl view has printed." : "stored");
  }
  if (about.right === "none") {
    if (!about.file) connection("The token is missing: rocectl page prints the address with it.");
  } else if (about.file) await showFile(about);
  else watchDaemon(about);
}

start().catch((err) => connection(err.message));
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) location.reload(); // takes it
});
