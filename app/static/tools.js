// @ts-check
/** The buttons in the bar above the text: copy, download, clear, keys; and the examples below an empty page. */

import { disclose } from "./dom.js";

/**
 * @param {HTMLElement} root
 * @param {import("./editor.js").Editor} editor
 */
export function setUpTools(root, editor) {
  const { textarea } = editor;
  const dialog = /** @type {HTMLDialogElement} */ (root.querySelector(".pd-keys"));
  /** @type {Record<string, (button: HTMLButtonElement) => void>} */
  const actions = {
    copy: () => copy(editor),
    download: () => download(editor),
    clear: () => clear(editor),
    keys: () => dialog.showModal(),
    settings: (button) => disclose(button),
    more: (button) => disclose(button),
    reset: () => editor.resetSettings(),
  };
  for (const button of root.querySelectorAll("button[data-do]")) {
    const name = /** @type {HTMLElement} */ (button).dataset.do ?? "";
    if (!(name in actions)) continue; // another part of the page answers it
    button.addEventListener("click", () => actions[name](/** @type {HTMLButtonElement} */ (button)));
  }
  for (const button of root.querySelectorAll(".pd-invite button")) {
    button.addEventListener("click", () => editor.insert(button.textContent ?? ""));
  }
  // A click beside the dialog closes it.
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => textarea.focus());
  // The room below the text belongs to the page: a click there goes on writing.
  root.querySelector(".pd-desk")?.addEventListener("click", (event) => {
    if (event.target === event.currentTarget) textarea.focus();
  });
}

/** @param {import("./editor.js").Editor} editor */
async function copy(editor) {
  const { textarea } = editor;
  const text = textarea.value;
  if (!text) return editor.toast("There is nothing to copy yet.");
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // No permission, or no clipboard interface: the old way needs a selection.
    const { selectionStart, selectionEnd } = textarea;
    textarea.focus();
    textarea.select();
    const copied = document.execCommand("copy");
    textarea.setSelectionRange(selectionStart, selectionEnd);
    if (!copied) return editor.toast("The browser did not allow copying. Select the text and copy it by hand.");
  }
  return editor.toast("Copied.");
}

/** @param {import("./editor.js").Editor} editor */
function download(editor) {
  const text = editor.textarea.value;
  if (!text) return editor.toast("There is nothing to download yet.");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  link.download = "polydraft.txt";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  return editor.toast("Saved as polydraft.txt.");
}

/** @param {import("./editor.js").Editor} editor */
function clear(editor) {
  const { textarea } = editor;
  if (!textarea.value) return editor.toast("The page is empty already.");
  textarea.focus();
  textarea.select();
  document.execCommand("delete");
  return editor.toast("Cleared.", { undo: true });
}
