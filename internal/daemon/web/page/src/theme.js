// Dark and light: as the system is, or as the reader wants it.

const kept = "roced-theme";
const listeners = [];

/** onTheme has f called when colours have changed. */
export function onTheme(f) {
  listeners.push(f);
}

/** colour is that of a CSS variable. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

function apply(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  for (const f of listeners) f();
}

/** startTheme makes a button change colours. */
export function startTheme(button) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
  const name = () => button.setAttribute("aria-label", now() === "dark" ? "Light colours" : "Dark colours");
  apply(localStorage.getItem(kept));
  name();
  dark.addEventListener("change", () => {
    apply();
    name();
  });
  button.addEventListener("click", () => {
    const theme = now() === "dark" ? "light" : "dark";
    localStorage.setItem(kept, theme);
    apply(theme);
    name();
  });
}
