// @ts-check
/** Simple buttons of the page: copy and keys; the examples below an empty page; and closing dialogs. */

import { finder, onDo } from "../shared/dom.js";

/** @param {HTMLElement} root @param {import("./start.js").Editor} editor */
export function setUpTools(root, editor) {
  const { textarea, field } = editor;
  const find = finder(root);
  onDo(root, { copy: () => copy(editor) });
  for (const button of root.querySelectorAll(".pd-invite button")) {
    button.addEventListener("click", () => field.insert(button.textContent ?? ""));
  }
  // After a click on a tool the text keeps the focus, and a phone its keyboard. A tool reached by Tab keeps the focus.
  const tools = ".pd-tools button, .pd-band button, .pd-line button, .pd-toast button";
  root.addEventListener("mousedown", (event) => {
    if (!(event.target instanceof Element && event.target.closest(tools))) return;
    event.preventDefault();
    if (matchMedia("(pointer: fine)").matches) textarea.focus({ preventScroll: true });
  });
  // A modal dialog takes the focus, and with it Chromium moves the caret to the beginning of the text.
  let place = [0, 0];
  textarea.addEventListener("blur", () => (place = [textarea.selectionStart, textarea.selectionEnd]));
  for (const dialog of root.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // a click beside its contents
    dialog.addEventListener("close", () => {
      textarea.setSelectionRange(place[0], place[1]);
      textarea.focus();
    });
  }
  // A click on the empty space below the text focuses the text.
  find(".pd-desk").addEventListener("click", (event) => {
    if (event.target === event.currentTarget) textarea.focus();
  });
}

/** @param {import("./start.js").Editor} editor */
async function copy({ textarea, privacy, notices }) {
  if (!textarea.textLength) return notices.toast("There is nothing to copy yet.");
  // The clipboard interface cannot include private ranges, so it is not used for private text.
  const isPrivate = privacy.ranges.length > 0;
  const copied = (!isPrivate && (await copiedByApi(textarea.value))) || copiedByCommand(textarea);
  return notices.toast(copied ? "Copied." : "The browser did not allow copying. Select the text and copy it by hand.");
}

/** Copy through the clipboard interface, which needs a permission. @param {string} text */
async function copiedByApi(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * Copy by selecting the text and running the browser's command, as the keyboard does.
 * @param {HTMLTextAreaElement} textarea
 */
function copiedByCommand(textarea) {
  const { selectionStart, selectionEnd } = textarea;
  const focused = document.activeElement;
  textarea.focus();
  textarea.select();
  const copied = document.execCommand("copy");
  textarea.setSelectionRange(selectionStart, selectionEnd);
  if (focused instanceof HTMLElement && focused !== document.body) focused.focus();
  return copied;
}
