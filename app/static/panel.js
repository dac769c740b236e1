// @ts-check
/**
 * The button of the sampling panel. What stands behind it is loaded when somebody wants it: on a click, or because a
 * link or the last visit chose something. Closed it asks for nothing and computes nothing.
 */

import { isKept } from "./kept.js";

/**
 * @param {HTMLElement} root
 * @param {import("./editor.js").Editor} editor
 */
export function setUpSampling(root, editor) {
  const button = /** @type {HTMLButtonElement} */ (root.querySelector(".pd-sampling-button"));
  /** @type {Promise<import("./sampling.js").Sampling | null> | null} */
  let loading = null;
  const panel = () => (loading ??= import("./sampling.js")
    .then(({ openSampling }) => openSampling(root, editor, button))
    .catch(() => {
      loading = null; // the next click tries again
      editor.toast("The sampling panel could not be loaded. Try again once Polydraft is connected.");
      return null;
    }));

  button.addEventListener("click", async () => (await panel())?.toggle());
  // A link says which setting it carries; see `Sampling.followLink`.
  const follow = async () => {
    if (/[#&](rule|mode|temperature|seed|k|length|speculate)=/.test(location.hash)) (await panel())?.followLink();
  };
  addEventListener("hashchange", follow);
  if (isKept()) panel();
  follow();
}
