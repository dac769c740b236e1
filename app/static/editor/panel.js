// @ts-check
/**
 * The button of the sampling panel. It loads the panel's scripts on demand: on a click, or if a link or the last visit
 * has set something. A closed panel sends no requests.
 */

import { SAMPLING, recall } from "../shared/memory.js";
import { getJson } from "../shared/transport.js";

/**
 * @param {HTMLElement} root
 * @param {import("../sampling/sampling.js").Page} page
 */
export function setUpSampling(root, page) {
  const button = /** @type {HTMLButtonElement} */ (root.querySelector(".pd-sampling-button"));
  /** @type {Promise<import("../sampling/sampling.js").Sampling | null> | null} */
  let loading = null;
  const panel = () => (loading ??= import("../sampling/sampling.js")
    .then(async ({ Sampling }) => new Sampling(root, page, button, await getJson("/api/sampling")))
    .catch(() => {
      loading = null; // the next click tries again
      page.toast("The sampling panel could not be loaded. Try again once Polydraft is connected.");
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
