// @ts-check
/**
 * The button of the sampling panel. It loads the panel's scripts on demand: on a click, or if a link or the last visit
 * has set something. A closed panel sends no requests.
 */

import { SAMPLING, recall } from "./memory.js";
import { getJson } from "./transport.js";

/**
 * @param {HTMLElement} root
 * @param {import("./editor.js").Editor} editor
 */
export function setUpSampling(root, editor) {
  const button = /** @type {HTMLButtonElement} */ (root.querySelector(".pd-sampling-button"));
  /** @type {Promise<import("./sampling.js").Sampling | null> | null} */
  let loading = null;
  const panel = () => (loading ??= import("./sampling.js")
    .then(async ({ Sampling }) => new Sampling(root, editor, button, await getJson("/api/sampling")))
    .catch(() => {
      loading = null; // the next click tries again
      editor.notices.toast("The sampling panel could not be loaded. Try again once Polydraft is connected.");
      return null;
    }));

  button.addEventListener("click", async () => (await panel())?.toggle());
  // The fragment of a link contains the settings; see `Sampling.followLink`.
  const follow = async () => {
    if (/[#&](rule|mode|temperature|seed|k|length|speculate)=/.test(location.hash)) (await panel())?.followLink();
  };
  addEventListener("hashchange", follow);
  if (recall(SAMPLING)) panel();
  follow();
}
