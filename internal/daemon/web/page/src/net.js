// What the page asks its server. Rights go with a token in a header: a cookie would be sent to every port of this host.

const kept = "roced-token";

/** takeToken takes the token out of the address, where it stays in no history and is sent to nobody. */
export function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return;
  sessionStorage.setItem(kept, token);
  history.replaceState(null, "", location.pathname);
}

function headers() {
  const token = sessionStorage.getItem(kept);
  return token ? { Authorization: "Bearer " + token } : {};
}

/** open makes a request and returns its answer; an error has the server's words. */
export async function open(path, { method = "GET", body, signal } = {}) {
  const r = await fetch(path, { method, headers: headers(), signal, body: body === undefined ? undefined : JSON.stringify(body) });
  if (r.ok) return r;
  let why = r.status + " " + r.statusText;
  try {
    why = (await r.json()).error || why;
  } catch {
    // an answer without words
  }
  throw new Error(why);
}

/** someName returns a name that nobody else has. */
export function someName() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** ask returns what an answer says. */
export async function ask(path, options) {
  return (await open(path, options)).json();
}

/** lines yields the lines of an answer as arrays, one for each piece that has come. */
export async function* lines(path, options) {
  const reader = (await open(path, options)).body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const all = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = all.pop();
    if (all.length) yield all;
  }
}

/** events yields server-sent events: {event, data}. EventSource cannot send a token. */
export async function* events(path, options) {
  let event = "message", id = "", data = [];
  for await (const some of lines(path, options)) {
    for (const line of some) {
      if (line === "") {
        if (data.length) yield { event, id, data: JSON.parse(data.join("\n")) };
        event = "message";
        data = [];
      } else if (line.startsWith("event: ")) event = line.slice(7);
      else if (line.startsWith("id: ")) id = line.slice(4);
      else if (line.startsWith("data: ")) data.push(line.slice(6));
    }
  }
}

/** bytes calls each with the pieces of an answer. */
export async function bytes(path, options, each) {
  const reader = (await open(path, options)).body.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    each(value);
  }
}
