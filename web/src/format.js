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

/** whole writes all digits of a number, in groups. */
export function whole(v) {
  return String(v).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** duration writes seconds, so exact that steps of so many seconds differ. */
export function duration(s, step = 0) {
  const [unit, name] = Math.abs(s) >= 1 || step >= 1 ? [1, "s"] : Math.abs(s) >= 1e-3 || step >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  let digits = Math.abs(s / unit) >= 100 ? 0 : 2;
  if (step > 0) for (digits = 0; digits < 6 && Math.abs(Math.round((step / unit) * 10 ** digits) - (step / unit) * 10 ** digits) > 1e-6; ) digits++;
  return s === 0 ? "0" : (s / unit).toFixed(digits) + "\u202f" + name;
}
