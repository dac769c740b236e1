// @ts-check
/** Lines of lists and indented lines: what Tab and Enter insert there. */

const INDENT = "\t";
const ITEM = /^(\s*)(?:([-*+•])|(\d{1,4})([.)]))(\s+)(.*)$/u;

/**
 * What Tab inserts at the beginning of a line; "" elsewhere, and in an empty text.
 * @param {string} text
 * @param {{selectionStart: number, selectionEnd: number}} selection
 */
export function indentation(text, { selectionStart, selectionEnd }) {
  if (selectionStart !== selectionEnd || !text.trim()) return "";
  const line = text.slice(text.lastIndexOf("\n", selectionStart - 1) + 1, selectionStart);
  return line.trim() ? "" : INDENT;
}

/**
 * The marker of the next item after a line of a list; "" after an item without text; null after another line.
 * @param {string} line up to the caret
 * @returns {string | null}
 */
export function nextMarker(line) {
  const item = line.match(ITEM);
  if (!item) return null;
  const [, indent, bullet, number, mark, space, text] = item;
  if (!text.trim()) return "";
  return indent + (bullet ?? `${Number(number) + 1}${mark}`) + space;
}

/**
 * Enter in a list: go on with the next marker; on an item without text, remove its marker.
 * @param {HTMLTextAreaElement} textarea
 * @param {(text: string) => boolean} hasRoomFor
 * @returns {boolean} whether the caret is in a list
 */
export function goOnWithList(textarea, hasRoomFor) {
  const { value, selectionStart, selectionEnd, readOnly } = textarea;
  if (readOnly || selectionStart !== selectionEnd) return false;
  const start = value.lastIndexOf("\n", selectionStart - 1) + 1;
  const marker = nextMarker(value.slice(start, selectionStart));
  if (marker === null) return false;
  if (marker) {
    if (!hasRoomFor(`\n${marker}`)) return true;
    // Two commands, so that the paragraph counts as finished: learning.js.
    document.execCommand("insertLineBreak");
    document.execCommand("insertText", false, marker);
    return true;
  }
  textarea.setSelectionRange(start, selectionStart);
  document.execCommand("delete");
  return true;
}
