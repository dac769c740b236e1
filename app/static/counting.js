// @ts-check
/** Counting words: what stands between spaces. A long text is counted in slices, so that typing goes on meanwhile. */

const SLICE = 100_000; // characters counted at once: some 2 ms

/**
 * @param {string} text
 * @param {() => boolean} stopped asked between slices; then the count is of no use
 * @returns {Promise<number>}
 */
export async function countWords(text, stopped = () => false) {
  let words = 0;
  let from = 0;
  while (from < text.length) {
    let to = Math.min(from + SLICE, text.length);
    // Not inside a word, unless that has no end.
    const space = to < text.length ? text.slice(to, to + 1000).search(/\s/) : -1;
    if (space > 0) to += space;
    words += text.slice(from, to).match(/\S+/g)?.length ?? 0;
    from = to;
    if (from < text.length) await pause();
    if (stopped()) break;
  }
  return words;
}

/** Let keys and drawing come in between. */
function pause() {
  return new Promise((go) => setTimeout(go));
}
