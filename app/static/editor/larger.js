// @ts-check
/**
 * One line on the first screen while the default model drafts: what a larger model would change, if one suits this
 * computer. Once it is closed it does not come back.
 */

import { on, part, setText } from "../shared/dom.js";
import { getLarger } from "../shared/downloads.js";
import { LARGER, keep, recall } from "../shared/memory.js";
import { failureOf } from "../shared/transport.js";
import { size } from "../shared/wording.js";

const DEFAULT = "default"; // the name of the default model
const CHANGE = "makes fewer mistakes and takes a little longer.";

/** @param {HTMLElement} root */
export function setUpLarger(root) {
  const line = part(root, ".pd-larger");
  const [text, open, close] = line.children;

  async function refresh() {
    if (recall(LARGER)) return;
    await failureOf(async () => {
      const words = wordsFor(await getLarger());
      line.hidden = !words || recall(LARGER) !== null;
      if (!words) return;
      setText(text, words[0]);
      setText(open, words[1]);
    });
  }

  on(root, "pd-status", ({ ready }) => ready && refresh());
  root.querySelector(".pd-models")?.addEventListener("close", refresh);
  close.addEventListener("click", (event) => {
    const byKey = /** @type {MouseEvent} */ (event).detail === 0;
    if (byKey) part(root, "#pd-text").focus();
    line.hidden = true;
    keep(LARGER, { closed: true });
  });
}

/**
 * The line, and its button; null where there is nothing to say.
 * @param {import("../shared/downloads.js").Larger} larger
 * @returns {[string, string] | null}
 */
function wordsFor({ recommended, serving, download }) {
  if (serving !== DEFAULT) return null;
  const suitable = recommended.filter(({ suits }) => suits);
  const coming = download?.running && suitable.find(({ name }) => name === download.name);
  if (coming) return [`${coming.title} is being downloaded.`, "How far…"];
  const here = suitable.find(({ path }) => path);
  if (here) return [`${here.title} is on this computer. It ${CHANGE}`, "Use it…"];
  const best = suitable.find((each) => each.best);
  return best ? [`A larger model ${CHANGE}`, `Get one, ${size(best.bytes)}…`] : null;
}
