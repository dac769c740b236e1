// @ts-check
/**
 * The line under the text: the number of words, and how many keys drafts have saved in this document. The technical
 * figures are in its tooltip, and beside it after a click.
 *
 *   keys saved = 1 - keys pressed / keys that the same text takes without drafts
 *
 * Each letter, each deletion and each draft taken counts as one key pressed. Pasted text is not counted, and neither is a
 * draft that was undone.
 */

import { countWords } from "../documents/document.js";
import { disclose } from "../shared/dom.js";
import { plural } from "../shared/wording.js";
import { Timers } from "../shared/timers.js";

const COUNT_AFTER = 150; // ms without a change until words are counted

/**
 * @param {HTMLElement} root
 * @param {import("./text_field.js").TextField} field
 * @param {() => {typed: number, taken: number, takes: number}} keysPressed the document's counts, which grow here
 * @param {(now: number) => void} typed called when a character was typed
 */
export function setUpCounts(root, field, keysPressed, typed) {
  const { textarea } = field;
  const line = /** @type {HTMLButtonElement} */ (root.querySelector(".pd-counts"));
  const technical = /** @type {HTMLElement} */ (root.querySelector(".pd-technical"));
  const timers = new Timers();
  let words = 0;
  let counting = 0;
  /** The draft that was taken last, unless it was undone. @type {{at: number, text: string} | null} */
  let last = null;

  textarea.addEventListener("input", (event) => {
    const { inputType = "", data = null } = /** @type {InputEvent} */ (event);
    const keys = keysPressed();
    if (field.inserting) {
      const text = data ?? "";
      if (text === textarea.value) return; // an example is not a draft
      keys.takes += 1;
      keys.taken += text.length;
      last = { at: textarea.selectionStart - text.length, text };
    } else if (inputType.startsWith("insertText") || inputType === "insertCompositionText") {
      keys.typed += Math.max(1, data?.length ?? 1);
      if (data?.length === 1) typed(performance.now());
    } else if (!/^insertFrom/.test(inputType)) {
      keys.typed += 1;
      if (inputType === "historyUndo" && last && !textarea.value.startsWith(last.text, last.at)) {
        keys.takes -= 1;
        keys.taken -= last.text.length;
        last = null;
      }
    }
  });
  root.addEventListener("pd-text", () => timers.later("count", COUNT_AFTER, count));
  root.addEventListener("pd-document", draw);
  line.addEventListener("click", () => disclose(line));
  line.addEventListener("pointerenter", tooltip);
  line.addEventListener("focus", tooltip);

  async function count() {
    const n = ++counting;
    const { text } = field;
    const found = await countWords(text, () => n !== counting && field.text !== text);
    if (n !== counting) return;
    words = found;
    draw();
  }

  function draw() {
    const { typed, taken, takes } = keysPressed();
    const saved = taken ? 1 - (typed + takes) / (typed + taken) : 0;
    const percent = Math.round(100 * saved);
    line.textContent = plural(words, "word") + (percent > 0 ? ` · ${percent}\u00a0% of keys saved` : "");
  }

  /** Copy the technical figures into the tooltip. */
  function tooltip() {
    const parts = [...technical.querySelectorAll(".pd-model, .pd-figures > span")];
    line.title = parts.map(({ textContent }) => textContent?.trim()).filter(Boolean).join(" · ");
  }
}
