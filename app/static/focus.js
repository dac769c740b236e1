// @ts-check
/**
 * A mouse click on a tool leaves the focus, and with it the caret and its drafts, in the text. Keys go the usual way: a
 * tool that was reached by Tab keeps the focus. So do panels and dialogs that a tool has opened.
 */

const TOOLS = ".pd-tools button, .pd-line button, .pd-toast button";

/**
 * @param {HTMLElement} root
 * @param {HTMLTextAreaElement} textarea
 */
export function setUpFocus(root, textarea) {
  let inText = false;
  root.addEventListener("mousedown", (event) => {
    if (!toolAt(event)) return;
    inText = document.activeElement === textarea;
    if (inText) event.preventDefault(); // the focus would leave the text, and on a phone the keyboard would close
  });
  root.addEventListener("click", (event) => {
    const tool = toolAt(event);
    const byMouse = event.detail > 0 && matchMedia("(pointer: fine)").matches;
    const opens = tool?.hasAttribute("aria-expanded") || tool?.hasAttribute("aria-haspopup");
    if (tool && byMouse && !opens && !inText && textarea.checkVisibility()) textarea.focus({ preventScroll: true });
  });
}

/** @param {MouseEvent} event */
function toolAt(event) {
  return event.target instanceof Element ? event.target.closest(TOOLS) : null;
}
