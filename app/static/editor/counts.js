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

import { countWords, wordsIn } from "../documents/document.js";
import { difference } from "./privacy.js";
import { disclose, part } from "../shared/dom.js";
import { plural } from "../shared/wording.js";
import { Timers } from "../shared/timers.js";

const NEAR = 1000; // characters around a change in which its words are counted
const COUNT_AFTER = 150; // ms without a change until words are counted

/**
 * How many words a small change has added to a text, counted around the change; null after a large one.
 * @param {string} old
 * @param {string} now
 * @param {number} caret
 */
function wordsAdded(old, now, caret) {
  if (Math.abs(now.length - old.length) > NEAR) return null;
  const { at, removed, inserted } = difference(old, now, caret);
  if (removed > NEAR || inserted > NEAR) return null;
  const before = now.slice(Math.max(0, at - NEAR), at);
  const start = Math.max(before.search(/\S*$/), 0);
  const from = at - before.length + start;
  const after = now.slice(at + inserted, at + inserted + NEAR).search(/\s|$/);
  if ((start === 0 && from > 0) || after === NEAR) return null; // a word without an end in sight
  return wordsIn(now.slice(from, at + inserted + after)) - wordsIn(old.slice(from, at + removed + after));
}

/**
 * @param {HTMLElement} root
 * @param {import("./text_field.js").TextField} field
 * @param {() => {typed: number, taken: number, takes: number}} keysPressed the document's counts, which grow here
 * @param {(now: number) => void} typed called when a character was typed
 */
export function setUpCounts(root, field, keysPressed, typed) {
  const { textarea } = field;
  const line = /** @type {HTMLButtonElement} */ (root.querySelector(".pd-counts"));
  const technical = part(root, ".pd-technical");
  const timers = new Timers();
  let words = 0;
  let counted = ""; // the text of which `words` were counted
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
      if (data?.length === 1) typed(field.typedAt);
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
    const changed = wordsAdded(counted, text, field.caret);
    const total = changed === null ? await countWords(text, () => n !== counting && field.text !== text) : words + changed;
    if (n !== counting) return;
    [words, counted] = [total, text];
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
