// A capture of a NIC: started, stopped, stored.
import { el, save, say } from "./dom.js";
import { short } from "./format.js";
import { bytes, open, someName } from "./net.js";

const most = 512 << 20; // bytes that a page keeps
const lastFrames = 5000; // ms that the end of a capture takes at most

/** whole returns how many bytes of pcapng pieces are whole blocks: whoever stops a stream cuts one. */
export function wholeBlocks(pieces) {
  const all = new Uint8Array(pieces.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of pieces) {
    all.set(p, at);
    at += p.length;
  }
  const view = new DataView(all.buffer);
  let end = 0;
  while (end + 12 <= all.length) {
    const n = view.getUint32(end + 4, true);
    if (n < 12 || end + n > all.length) break;
    end += n;
  }
  return all.subarray(0, end);
}

/** captureControls returns the buttons for a NIC. */
export function captureControls(nic) {
  const path = `v1/capture/${encodeURIComponent(nic)}`;
  let going = null; // the capture: its id, and what gives it up
  const state = el("span", { class: "state", role: "status" });
  const snap = el("input", { type: "checkbox" });
  const button = el("button", { type: "button", text: "Start capture", onclick: () => (going ? stop() : run()) });
  /** stop has the capture end with all frames up to now; giving it up would lose those that are on their way. */
  function stop() {
    const { id, abort } = going;
    setTimeout(() => abort.abort(), lastFrames);
    open(`${path}/${id}`, { method: "DELETE", signal: abort.signal }).catch(() => abort.abort());
  }
  async function run() {
    const pieces = [], id = someName(), abort = new AbortController();
    let n = 0, why = "";
    going = { id, abort };
    button.textContent = "Stop and download";
    snap.disabled = true;
    try {
      await bytes(`${path}?id=${id}${snap.checked ? "&snaplen=128" : ""}`, { method: "POST", signal: abort.signal }, (piece) => {
        pieces.push(piece);
        n += piece.length;
        state.textContent = short(n, "B");
        if (n > most) abort.abort();
      });
    } catch (err) {
      if (!abort.signal.aborted) why = err.message;
    }
    going = null;
    button.textContent = "Start capture";
    snap.disabled = false;
    if (n) save(`${nic}.pcapng`, new Blob([wholeBlocks(pieces)], { type: "application/x-pcapng" }));
    state.textContent = why || `${short(n, "B")} captured`;
    say(state.textContent);
  }
  return el("div", { class: "controls" }, button, el("label", {}, snap, " headers only"), state);
}
