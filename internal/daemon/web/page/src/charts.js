// Charts of one time axis: zoomed and panned together, idle time compressed on demand.
import uPlot from "uplot";
import { el, setText } from "./dom.js";
import { duration, short, whole } from "./format.js";
import { straight } from "./idle.js";
import { colour, onTheme } from "./theme.js";

const usual = 190; // pixels

/** marks draw what a series shows at a place; shapes tell series apart without colours. */
const marks = {
  dot: (c, x, y, r) => c.fillRect(x - r, y - r, 2 * r, 2 * r),
  cross(c, x, y, r) {
    c.beginPath();
    c.moveTo(x - 2 * r, y - 2 * r);
    c.lineTo(x + 2 * r, y + 2 * r);
    c.moveTo(x - 2 * r, y + 2 * r);
    c.lineTo(x + 2 * r, y - 2 * r);
    c.stroke();
  },
  peak(c, x, y, r) {
    c.beginPath();
    c.moveTo(x - 2 * r, y + 2 * r);
    c.lineTo(x, y - 2 * r);
    c.lineTo(x + 2 * r, y + 2 * r);
    c.stroke();
  },
  post(c, x, y, r, box) {
    c.beginPath();
    c.moveTo(x, box.top);
    c.lineTo(x, box.top + box.height);
    c.stroke();
    c.fillRect(x - 2 * r, y - 2 * r, 4 * r, 4 * r);
  },
};

/** Group is charts that share a time axis. */
export class Group {
  charts = [];
  axis = straight;
  skipped = []; // {from, to}: seconds of which there are no data
  #range = null; // of places, that the reader has chosen; null follows the data
  #span = 0; // seconds that are shown of data that grow; 0 for all
  #end = [0, 1];

  constructor() {
    onTheme(() => this.charts.forEach((c) => c.rebuild()));
  }

  /** setAxis shows time on another axis. The part that is shown stays so. */
  setAxis(axis) {
    const times = this.#range?.map((x) => this.axis.from(x));
    this.axis = axis;
    this.paused?.(axis.gaps.length);
    if (times) this.#range = times.map((t) => axis.to(t));
  }

  /** setSpan shows the last seconds of data that grow. */
  setSpan(seconds) {
    this.#span = seconds;
    this.show(null);
  }

  /** extent says from when to when there are data, in seconds. */
  extent(from, to) {
    this.#end = [this.axis.to(from), this.axis.to(to)];
  }

  /** range is the part that is shown. */
  get range() {
    const [from, to] = this.#end;
    const [a, b] = this.#range ?? [this.#span ? Math.max(from, to - this.#span) : from, to];
    return b > a ? [a, b] : [a, a + 1]; // of one moment, the second after it
  }

  /** show shows a part; null what there is. */
  show(range) {
    this.#range = range;
    for (const c of this.charts) c.scale();
  }

  /** zoom makes everything larger around the place at a share of the width. */
  zoom(factor, share = 0.5) {
    const [a, b] = this.range, at = a + (b - a) * share, w = Math.max((b - a) / factor, 1e-7);
    this.show([at - w * share, at + w * (1 - share)]);
  }

  /** pan moves by a share of the width. */
  pan(share) {
    const [a, b] = this.range, d = (b - a) * share;
    this.show([a + d, b + d]);
  }

  /** press does what a key on a chart means. */
  press(e) {
    const act = {
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.zoom(2), "=": () => this.zoom(2),
      "-": () => this.zoom(0.5), 0: () => this.show(null),
    }[e.key];
    if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    act();
  }
}

/** Chart is one of a group: {name, title, unit, series: [{label, colour, mark or line}], value(y)}. */
export class Chart {
  #data = null;
  #plot = null;

  constructor(group, options) {
    Object.assign(this, { group, height: usual, ...options });
    this.canvas = el("div", { class: "plot" });
    this.summary = el("span", { class: "summary" });
    this.element = el("figure", { class: "chart", tabindex: 0, role: "group", "aria-label": this.title, "data-chart": this.name, onkeydown: (e) => group.press(e) },
      el("figcaption", {}, el("b", { text: this.title }), " ", this.summary,
        el("span", { class: "legend", "aria-hidden": "true" }, ...this.series.map((s) => el("span", { class: "key " + s.colour, text: s.label })))),
      this.canvas);
    group.charts.push(this);
    new ResizeObserver(() => this.#plot?.setSize({ width: this.canvas.clientWidth, height: this.height })).observe(this.canvas);
  }

  /** set draws data: {t, v}, times in seconds. What they come to is said in words. */
  set(data, words) {
    this.element.hidden = data.t.length === 0;
    if (this.summary.textContent !== words) this.summary.textContent = words;
    if (this.element.hidden) return;
    const axis = this.group.axis;
    this.#data = [axis === straight ? data.t : data.t.map(axis.to), ...data.v];
    if (!this.#plot) this.rebuild();
    else {
      this.#plot.setData(this.#data, false);
      this.scale();
    }
  }

  /** scale shows the part that the group shows, and values as far as they go there. */
  scale() {
    if (!this.#plot) return;
    const [min, max] = this.group.range, [from, to] = [min, max].map((x) => this.group.axis.from(x));
    this.#plot.setScale("x", { min, max });
    this.element.setAttribute("aria-description", `from ${duration(from, (to - from) / 1000)} to ${duration(to, (to - from) / 1000)}`);
  }

  rebuild() {
    if (!this.#data) return;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(), this.#data, this.canvas);
    this.scale();
  }

  #options() {
    const grid = { stroke: colour("grid"), width: 1 }, axis = { stroke: colour("quiet"), grid, ticks: grid, font: "12px system-ui" };
    return {
      width: this.canvas.clientWidth || 600, height: this.height, legend: { show: false },
      scales: { x: { time: false, range: (u, min, max) => [min, max] }, y: { range: (u, min, max) => this.#span(u, min, max) } },
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, bind: { mousedown: (u, t, h) => (e) => (e.shiftKey ? this.#drag(u, e) : h(e)),
        dblclick: () => () => (this.group.show(null), null) } },
      axes: [
        { ...axis, space: 90, values: (u, splits, n, space, step) => splits.map((x) => duration(this.group.axis.from(x), step)) },
        { ...axis, size: 76, values: (u, splits) => splits.map((y) => this.value(y)) },
      ],
      series: [{}, ...this.series.map((s) => this.#series(s))],
      hooks: {
        draw: [(u) => this.#marks(u)],
        setSelect: [(u) => this.#selected(u)],
      },
    };
  }

  #series(s) {
    const line = s.mark ? () => null : uPlot.paths.stepped({ align: 1 });
    return { label: s.label, stroke: colour(s.colour), width: 1.5, spanGaps: true, points: { show: false }, paths: line };
  }

  #span(u, min, max) {
    if (min === null) return [0, 1];
    const low = this.fromZero ? 0 : min, room = (max - low) * 0.06 || Math.abs(max) * 0.1 || 1;
    return [this.fromZero ? 0 : low - room, max + room];
  }

  #selected(u) {
    const { left, width } = u.select;
    if (width > 3) this.group.show([u.posToVal(left, "x"), u.posToVal(left + width, "x")]);
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  }

  // #drag pans while the button is held.
  #drag(u, e) {
    const [a, b] = this.group.range, from = e.clientX, width = u.over.clientWidth;
    const move = (e) => {
      const d = ((from - e.clientX) / width) * (b - a);
      this.group.show([a + d, b + d]);
    };
    addEventListener("mousemove", move);
    addEventListener("mouseup", () => removeEventListener("mousemove", move), { once: true });
    return null;
  }

  #marks(u) {
    const c = u.ctx, [x, ...columns] = u.data, { min, max } = u.scales.x, r = devicePixelRatio;
    c.save();
    c.beginPath();
    c.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    c.clip();
    this.#skipped(u, c);
    this.#gaps(u, c);
    c.lineWidth = r;
    const from = lower(x, min), to = lower(x, max, true);
    this.series.forEach((s, n) => {
      if (!s.mark) return;
      c.fillStyle = c.strokeStyle = colour(s.colour);
      let lastX = -1, lastY = -1;
      for (let i = from; i < to; i++) {
        const v = columns[n][i];
        if (v === null) continue;
        const px = Math.round(u.valToPos(x[i], "x", true)), py = Math.round(u.valToPos(v, "y", true));
        if (px === lastX && py === lastY) continue; // it would cover the other one
        lastX = px;
        lastY = py;
        marks[s.mark](c, px, py, 1.5 * r, u.bbox);
      }
    });
    c.restore();
  }

  // #skipped hatches where events were left out.
  #skipped(u, c) {
    const { top, left, width, height } = u.bbox, [min, max] = this.group.range, step = 8 * devicePixelRatio;
    c.strokeStyle = colour("line");
    c.lineWidth = devicePixelRatio;
    for (const s of this.group.skipped) {
      const a = this.group.axis.to(s.from), b = this.group.axis.to(s.to);
      if (b < min || a > max) continue;
      const x = Math.max(u.valToPos(a, "x", true), left), w = Math.min(u.valToPos(b, "x", true), left + width) - x;
      c.save();
      c.beginPath();
      c.rect(x, top, w, height);
      c.clip();
      c.beginPath();
      for (let at = x - height - (x % step); at < x + w; at += step) {
        c.moveTo(at, top + height);
        c.lineTo(at + height, top);
      }
      c.stroke();
      c.restore();
    }
  }

  // #gaps shows where idle time was taken out, and how much.
  #gaps(u, c) {
    c.fillStyle = colour("gap");
    c.font = `${11 * devicePixelRatio}px system-ui`;
    c.textBaseline = "top";
    c.textAlign = "left";
    let free = -Infinity;
    for (const g of this.group.axis.gaps) {
      const a = u.valToPos(g.at, "x", true), b = u.valToPos(g.at + g.width, "x", true);
      if (b < u.bbox.left || a > u.bbox.left + u.bbox.width) continue;
      c.fillStyle = colour("gap");
      c.fillRect(a, u.bbox.top, b - a, u.bbox.height);
      const text = duration(g.took), w = c.measureText(text).width, at = (a + b - w) / 2;
      if (at < free) continue;
      c.fillStyle = colour("quiet");
      c.fillText(text, at, u.bbox.top + 2 * devicePixelRatio);
      free = at + w + 6;
    }
  }
}

// lower is the place of the first element that is not less than v; or, beyond, of the first that is greater.
function lower(sorted, v, beyond = false) {
  let lo = 0, hi = sorted.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (sorted[mid] < v || (beyond && sorted[mid] === v)) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}

/** controls are the buttons of a group. */
export function controls(group, { idle, spans }) {
  const button = (text, label, f) => el("button", { type: "button", text, "aria-label": label, title: label, onclick: f });
  const box = el("input", { type: "checkbox", onchange: () => idle(box.checked) }), pauses = el("span");
  group.paused = (n) => setText(pauses, n ? ` (${n} pause${n > 1 ? "s" : ""})` : "");
  const parts = [button("◀", "Earlier", () => group.pan(-0.5)), button("▶", "Later", () => group.pan(0.5)), button("+", "Zoom in", () => group.zoom(2)),
    button("−", "Zoom out", () => group.zoom(0.5)), button("All", "Show all", () => group.show(null)), el("label", {}, box, " compress idle time", pauses)];
  if (spans) {
    const select = el("select", { "aria-label": "Seconds shown", onchange: () => group.setSpan(Number(select.value)) },
      ...spans.map((s) => el("option", { value: s, text: s ? `last ${s} s` : "all" })));
    group.setSpan(spans[0]);
    parts.push(select);
  }
  return el("div", { class: "controls", role: "toolbar", "aria-label": "Time axis" }, ...parts);
}

/** units write values of charts. */
export const units = {
  psn: (v) => whole(Math.round(v)),
  bytes: (v) => short(v, "B"),
  bits: (v) => short(v, "b/s"),
  seconds: (v) => duration(v),
  packets: (v) => short(v),
};
