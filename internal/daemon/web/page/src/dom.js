// Elements without markup: text is always text.

/** el makes an element. Properties that begin with "on" are listeners, "text" is its text, the others attributes. */
export function el(tag, props = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === false) continue;
    if (name === "text") e.textContent = value;
    else if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.filter((c) => c !== undefined && c !== null));
  return e;
}

/** setText changes the text of an element if it is another one, so that nothing is laid out or read out for nothing. */
export function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

/** say tells screen readers what has happened. */
export function say(text) {
  setText(document.getElementById("said"), text);
}

/** save has the browser store what is in a Blob. */
export function save(name, blob) {
  const url = URL.createObjectURL(blob);
  const a = el("a", { href: url, download: name });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** section returns the part of the page with an id, shows it, and empties what the page fills in. */
export function section(id) {
  const s = document.getElementById(id);
  s.hidden = false;
  return s.querySelector(".body");
}
