// A capture of a NIC: started, stopped, stored.
import { el, save, say } from "./dom.js";
import { short } from "./format.js";
import { bytes } from "./net.js";

const most = 512 << 20; // bytes that a page keeps

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
  let abort = null;
  const state = el("span", { class: "state", role: "status" });
  const snap = el("input", { type: "checkbox" });
  const button = el("button", { type: "button", text: "Start capture", onclick: () => (abort ? abort.abort() : run()) });
  async function run() {
    const pieces = [];
    let n = 0, why = "";
    abort = new AbortController();
    button.textContent = "Stop and download";
    snap.disabled = true;
    try {
      await bytes(`v1/capture/${encodeURIComponent(nic)}${snap.checked ? "?snaplen=128" : ""}`, { method: "POST", signal: abort.signal }, (piece) => {
        pieces.push(piece);
        n += piece.length;
        state.textContent = short(n, "B");
        if (n > most) abort.abort();
      });
    } catch (err) {
      if (!abort.signal.aborted) why = err.message;
    }
    abort = null;
    button.textContent = "Start capture";
    snap.disabled = false;
    if (n) save(`${nic}.pcapng`, new Blob([wholeBlocks(pieces)], { type: "application/x-pcapng" }));
    state.textContent = why || `${short(n, "B")} captured`;
    say(state.textContent);
  }
  return el("div", { class: "controls" }, button, el("label", {}, snap, " headers only"), state);
}
