// Idle time, compressed: long pauses between events take a fixed small part of the axis.

const most = 40; // pauses
const part = 0.03; // of the axis that one takes

/** Straight is a time axis as it is. */
export const straight = { gaps: [], to: (t) => t, from: (x) => x };

/**
 * compress returns a time axis on which long pauses are short: to maps times to places, from back; gaps are the pauses
 * as {at, width, took}. A pause is long that takes more than a twentieth of what is left without the longer ones, and
 * more than twenty times what most take. It is none if events were left out there.
 */
export function compress(times, skipped = []) {
  if (times.length < 2) return straight;
  const pauses = [], full = new Set(skipped.map((s) => s.from));
  for (let i = 1; i < times.length; i++) {
    const took = times[i] - times[i - 1];
    if (took > 0 && !full.has(times[i - 1])) pauses.push({ start: times[i - 1], took });
  }
  pauses.sort((a, b) => b.took - a.took);
  const ordinary = pauses.length ? pauses[pauses.length >> 1].took : 0;
  let busy = times[times.length - 1] - times[0], n = 0;
  while (n < Math.min(most, pauses.length) && pauses[n].took > Math.max(busy / 20, 20 * ordinary)) busy -= pauses[n++].took;
  if (!n) return straight;
  const long = pauses.slice(0, n).sort((a, b) => a.start - b.start);
  const width = Math.min(Math.max(busy * part, 1e-9), long.reduce((w, p) => Math.min(w, p.took), Infinity));
  return axis(long, width);
}

function axis(long, width) {
  let saved = 0;
  const gaps = long.map((p) => {
    const g = { start: p.start, at: p.start - saved, took: p.took, width };
    saved += p.took - width;
    return g;
  });
  const before = (value, member) => {
    let lo = 0, hi = gaps.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (gaps[mid][member] < value) lo = mid + 1;
      else hi = mid;
    }
    return gaps[lo - 1];
  };
  return {
    gaps,
    to(t) {
      const g = before(t, "start");
      if (!g) return t;
      const inside = t - g.start;
      return inside < g.took ? g.at + (inside / g.took) * width : g.at + width + inside - g.took;
    },
    from(x) {
      const g = before(x, "at");
      if (!g) return x;
      const inside = x - g.at;
      return inside < width ? g.start + (inside / width) * g.took : g.start + g.took + inside - width;
    },
  };
}
