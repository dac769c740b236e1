// @ts-check
/** Counts words (runs of characters that are no spaces). A long text is counted in slices, so typing stays fast. */

const SLICE = 100_000; // characters counted at once: about 2 ms

/**
 * @param {string} text
 * @param {() => boolean} stopped called between slices; true stops counting
 * @returns {Promise<number>} incomplete if counting was stopped
 */
export async function countWords(text, stopped = () => false) {
  let words = 0;
  let from = 0;
  while (from < text.length) {
    let to = Math.min(from + SLICE, text.length);
    // End the slice at a space, unless the word is longer than 1000 characters.
    const space = to < text.length ? text.slice(to, to + 1000).search(/\s/) : -1;
    if (space > 0) to += space;
    words += text.slice(from, to).match(/\S+/g)?.length ?? 0;
    from = to;
    if (from < text.length) await pause();
    if (stopped()) break;
  }
  return words;
}

/** Let the browser handle keys and drawing. */
function pause() {
  return new Promise((resolve) => setTimeout(resolve));
}
