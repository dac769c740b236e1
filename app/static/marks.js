// @ts-check
/** Which parts of a draft come from a personal store, and how they are drawn: underlined, in the text's own place. */

/**
 * The marked parts of what is left of a draft, as from-to pairs in UTF-16 units of `rest`.
 * @param {import("./drafting.js").Draft} draft
 * @param {string} rest the end of the draft's text
 * @returns {[number, number][]}
 */
export function marks(draft, rest) {
  if (!draft.personal?.length) return [];
  const characters = [...draft.text]; // the server counts those
  const gone = draft.text.length - rest.length;
  const unit = (/** @type {number} */ at) => characters.slice(0, at).join("").length - gone;
  return draft.personal
    .map(([start, end]) => /** @type {[number, number]} */ ([Math.max(0, unit(start)), unit(end)]))
    .filter(([start, end]) => end > start);
}

/**
 * Draw `text` from `start` to `end` with its marks. Nothing is touched that is there already: while drafts grow, this
 * runs for every row at every step.
 * @param {HTMLElement} element
 * @param {string} text
 * @param {[number, number][]} marked
 * @param {number} start
 * @param {number} end
 */
export function drawMarked(element, text, marked, start, end) {
  const inside = marked
    .map(([from, to]) => [Math.max(from, start), Math.min(to, end)])
    .filter(([from, to]) => to > from);
  const shown = text.slice(start, end);
  const key = inside.flat().map((at) => at - start).join();
  if (element.textContent === shown && (element.dataset.marks ?? "") === key) return;
  if (!inside.length) element.textContent = shown;
  else {
    let at = start;
    element.replaceChildren();
    for (const [from, to] of inside) {
      const mark = document.createElement("span");
      mark.className = "pd-mine";
      // The space before a word is part of the token, but no part of what the eye shall catch.
      const space = text.slice(from, to).match(/^\s*/)?.[0].length ?? 0;
      mark.textContent = text.slice(from + space, to);
      element.append(text.slice(at, from + space), mark);
      at = to;
    }
    element.append(text.slice(at, end));
  }
  if (key) element.dataset.marks = key;
  else delete element.dataset.marks;
}
