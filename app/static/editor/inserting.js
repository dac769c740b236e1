// @ts-check
/** Inserts text into a <textarea> as if it had been typed, so that the browser's undo and redo include it. */

/**
 * Insert at the caret, in place of the selection, as a separate step of undo.
 * @param {HTMLTextAreaElement} textarea
 * @param {string} text
 */
export function insertAsTyped(textarea, text) {
  textarea.focus({ preventScroll: true });
  separateUndo(textarea);
  if (!document.execCommand("insertText", false, text)) {
    textarea.setRangeText(text, textarea.selectionStart, textarea.selectionEnd, "end");
    textarea.dispatchEvent(new InputEvent("input", { inputType: "insertText", data: text, bubbles: true }));
  }
  separateUndo(textarea);
}

/**
 * Browsers undo a run of typing as one step. Moving the caret ends the run, so that undo removes only the draft.
 * @param {HTMLTextAreaElement} textarea
 */
function separateUndo(textarea) {
  const { selectionStart, selectionEnd } = textarea;
  if (selectionStart !== selectionEnd) return;
  const aside = selectionStart > 0 ? selectionStart - 1 : Math.min(1, textarea.textLength);
  textarea.setSelectionRange(aside, aside);
  textarea.setSelectionRange(selectionStart, selectionStart);
}
