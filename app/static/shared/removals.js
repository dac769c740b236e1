// @ts-check
/** Tells the other tabs of this browser that text was removed from a personal store: their drafts may contain it. */

const channel = new BroadcastChannel("polydraft.removals");

export function tellOtherTabs() {
  channel.postMessage(null);
}

/** @param {() => void} action run when another tab has removed text */
export function whenOthersRemove(action) {
  channel.addEventListener("message", action);
}
