// Numbers as people read them.

/** short writes a number with about three digits and a prefix, in steps of 1000. */
export function short(v, unit = "") {
  const prefixes = ["", "k", "M", "G", "T"];
  let i = 0;
  for (; Math.abs(v) >= 999.5 && i < prefixes.length - 1; i++) v /= 1000;
  const digits = Number.isInteger(v) ? 0 : Math.abs(v) >= 100 ? 0 : Math.abs(v) >= 10 ? 1 : 2;
  const sep = unit || i ? "\u202f" : "";
  return v.toFixed(digits) + sep + prefixes[i] + unit;
}

/** count writes a number of things: "1 queue pair", "2 queue pairs". */
export function count(n, one, text = n) {
  return `${text} ${one}${n === 1 ? "" : "s"}`;
}

/** number writes a queue pair number in both notations. */
export function number(n) {
  return `${n} (0x${n.toString(16)})`;
}

/** whole writes all digits of a number, in groups. */
export function whole(v) {
  return String(v).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** duration writes seconds, so exact that steps of so many seconds differ. */
export function duration(s, step = 0) {
  const [unit, name] = Math.abs(s) >= 1 || step >= 1 ? [1, "s"] : Math.abs(s) >= 1e-3 || step >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  const digits = step > 0 ? places(step / unit) : Math.abs(s / unit) >= 100 ? 0 : 2;
  return s === 0 ? "0" : (s / unit).toFixed(digits) + "\u202f" + name;
}

// places is how many a multiple of step needs behind the point: all of them, or two that differ.
function places(step) {
  const most = Math.min(Math.max(Math.ceil(-Math.log10(step)) + 1, 0), 6);
  let n = 0;
  while (n < most && Math.abs(Math.round(step * 10 ** n) - step * 10 ** n) > 1e-6) n++;
  return n;
}
