// A stored trace, capture or result of a simulation, without a daemon.
import { Chart, Group, controls, units } from "./charts.js";
import { el, section, setText } from "./dom.js";
import { flowTable } from "./flows.js";
import { duration, short, whole } from "./format.js";
import { compress, straight } from "./idle.js";
import { ask, lines, open } from "./net.js";
import { Store } from "./store.js";
import { Table } from "./table.js";
import { TraceView } from "./traceview.js";

const mostFrames = 500_000; // of a capture, that are listed and drawn

/** showFile shows what about says. */
export async function showFile(about) {
  await { trace: showTrace, capture: showCapture, simulation: showSimulation }[about.kind]();
}

function view(place, store) {
  const v = new TraceView(store);
  place.append(v.element);
  v.draw();
}

async function showTrace() {
  const place = section("stored"), store = new Store(false);
  for await (const some of lines("v1/file/trace")) for (const line of some) if (line) store.add(JSON.parse(line));
  const s = store.start;
  place.append(el("p", { class: "state", text: `${s.nic} QP ${s.qpn} with QP ${s.dest_qpn}, ${s.profile}, path MTU ${s.path_mtu}, ${new Date(s.time).toLocaleString("en-GB")}: ` +
    `${whole(store.events)} events${store.end?.lost ? `, ${whole(store.end.lost)} lost` : ""}${store.end ? "" : "; the trace ends early"}` }));
  view(place, store);
}

async function showCapture() {
  const place = section("stored"), charts = el("div"), state = el("p", { class: "state", role: "status", text: "Reading …" });
  const frames = [];
  const flows = flowTable((f) => charts.replaceChildren(el("h3", { text: "As the capture has seen it" }), sequenceOf(f, frames)));
  const list = frameTable();
  place.append(state, flows.element, charts, el("h3", { text: "Frames" }), list.element);
  const report = await ask("v1/file/flows");
  flows.set(report.flows);
  for await (const some of lines("v1/file/frames")) {
    for (const line of some) if (line && frames.length < mostFrames) frames.push(JSON.parse(line));
  }
  list.set(frames);
  setText(state, `${whole(report.totals.packets)} RoCEv2 packets, ${whole(report.totals.other)} others, ${whole(report.totals.bad_icrc)} with a bad ICRC` +
    (frames.length === mostFrames ? `; the first ${whole(mostFrames)} are listed` : ""));
  if (report.flows.length) flows.choose(0);
}

function frameTable() {
  const column = (name, title, value, more) => ({ name, title, value, ...more });
  const text = (title, member, width) => column(member, title, (f) => f[member] ?? "", { width });
  const number = (title, member) => column(member, title, (f) => f[member], { end: true, width: "minmax(5em, 1fr)" });
  return new Table({ label: "Frames", key: (f) => f.packet, empty: "No RoCEv2 frame.", columns: [number("No.", "packet"),
    column("time", "Time", (f) => f.time, { text: (f) => f.time.slice(11, 26), width: "minmax(9em, 1fr)" }), text("From", "src", "minmax(8em, 1fr)"), text("To", "dst", "minmax(8em, 1fr)"),
    text("Opcode", "opcode", "minmax(11em, 2fr)"), number("QP", "qpn"), number("PSN", "psn"), number("Payload", "payload"), text("ECN", "ecn", "5em"),
    column("comment", "", (f) => f.comment ?? f.error ?? "", { width: "minmax(8em, 2fr)" })] });
}

/** sequenceOf makes a trace of what a capture has of a flow. */
function sequenceOf(flow, frames) {
  const store = new Store(false), place = el("div");
  const toResponder = (f) => f.dst === flow.responder.addr && f.qpn === flow.responder.qpn;
  const toRequester = (f) => f.dst === flow.requester.addr && f.qpn === flow.requester.qpn && f.msn !== undefined;
  let first = null, high = null;
  for (const f of frames) {
    if (f.psn === undefined || (!toResponder(f) && !toRequester(f))) continue;
    const at = Date.parse(f.time.slice(0, 20) + "000Z") * 1e6 + Number(f.time.slice(20, -1).padEnd(9, "0"));
    first ??= at;
    const t = at - first;
    if (!toResponder(f)) {
      store.add({ t, event: "ack", psn: f.psn });
      continue;
    }
    const ahead = high === null || (((f.psn - high) << 8) >> 8) > 0;
    if (ahead) high = f.psn;
    store.add({ t, event: "sent", psn: f.psn, rtx: !ahead, length: f.payload });
  }
  if (store.times.length) view(place, store);
  else place.append(el("p", { class: "hint", text: "None of its packets is among those listed." }));
  return place;
}

async function showSimulation() {
  const place = section("stored"), s = await ask("v1/file/summary");
  const facts = { Transport: s.profile, Seed: s.seed, Simulated: duration(s.ended_ps / 1e12), Messages: `${whole(s.messages)} done, ${s.unfinished} unfinished, ${s.failed} failed`,
    Goodput: units.bits(s.goodput_bps), "Jain's index": s.jain.toFixed(3), "Sent again": whole(s.retransmitted_packets), Timeouts: whole(s.timeouts), Marked: whole(s.marked_packets),
    "Longest queue": short(s.peak_queue_bytes, "B"), Pauses: `${whole(s.pauses)}, ${duration(s.paused_ps / 1e12)} together`,
    Lost: Object.entries(s.drops ?? {}).map(([why, n]) => `${whole(n)} ${why}`).join(", ") || "none" };
  place.append(el("h3", { text: s.name }), el("dl", { class: "facts" }, ...Object.entries(facts).map(([k, v]) => el("div", {}, el("dt", { text: k }), el("dd", { text: String(v) })))),
    el("h3", { text: "Slowdown by size of messages" }), sizes(s.by_size));
  const samples = await table("v1/file/samples"), flows = await table("v1/file/flows");
  if (samples) place.append(network(samples));
  if (flows) place.append(messages(flows));
}

function sizes(buckets) {
  const heads = ["Bytes", "Messages", "Mean FCT", "Mean", "50 %", "95 %", "99 %", "99.9 %"];
  const row = (b) => [b.to_bytes === 2 ** 32 - 1 ? "more than " + short(b.from_bytes) : "up to " + short(b.to_bytes), whole(b.slowdown.count), duration(b.fct_us.mean / 1e6),
    ...[b.slowdown.mean, b.slowdown.p50, b.slowdown.p95, b.slowdown.p99, b.slowdown["p99.9"]].map((v) => v.toFixed(2))];
  return el("table", { class: "plain" }, el("thead", {}, el("tr", {}, ...heads.map((t, i) => el("th", { scope: "col", text: t, class: i ? "end" : undefined })))),
    el("tbody", {}, ...(buckets ?? []).map((b) => el("tr", {}, ...row(b).map((t, i) => el("td", { text: t, class: i ? "end" : undefined }))))));
}

// table reads a CSV file of numbers by columns; null if there is none.
async function table(path) {
  const text = await (await open(path)).text();
  const [head, ...rows] = text.trimEnd().split("\n");
  if (!head || !rows.length) return null;
  const columns = Object.fromEntries(head.split(",").map((name) => [name, []])), all = Object.values(columns);
  for (const row of rows) row.split(",").forEach((v, i) => all[i].push(Number(v)));
  return columns;
}

// together draws charts of the same instants.
function together(t, kinds) {
  const group = new Group(), charts = kinds.map((k) => new Chart(group, k));
  const draw = (idle) => {
    group.setAxis(idle ? compress(t) : straight);
    group.extent(t[0], t.at(-1));
    for (const c of charts) c.set({ t, v: c.values }, c.words);
    group.show(null);
  };
  const place = el("div", { class: "charts" }, controls(group, { idle: draw }), ...charts.map((c) => c.element));
  draw(false);
  return place;
}

function network(s) {
  const most = (v) => v.reduce((a, b) => Math.max(a, b), 0);
  return together(s.at_ps.map((v) => v / 1e12), [
    { name: "queues", title: "Queues", fromZero: true, value: units.bytes, words: `longest ${units.bytes(most(s.longest_queue_bytes))}`,
      series: [{ label: "all switches", colour: "blue" }, { label: "longest", colour: "orange" }], values: [s.queued_bytes, s.longest_queue_bytes] },
    { name: "goodput", title: "Goodput", fromZero: true, value: units.bits, words: `at most ${units.bits(most(s.goodput_bps))}`, series: [{ label: "goodput", colour: "green" }], values: [s.goodput_bps] },
  ]);
}

function messages(f) {
  const order = f.start_ps.map((_, i) => i).sort((a, b) => f.start_ps[a] - f.start_ps[b]);
  return together(order.map((i) => f.start_ps[i] / 1e12), [
    { name: "slowdown", title: "Slowdown of messages by their start", fromZero: true, value: (v) => short(v), words: `${whole(order.length)} messages`,
      series: [{ label: "slowdown", colour: "violet", mark: "dot" }], values: [order.map((i) => f.slowdown[i])] },
  ]);
}
