// @ts-check
/**
 * After a mouse click on a tool the text keeps the focus, so caret and drafts stay. A tool reached by Tab keeps the
 * focus, and so do panels and dialogs that a tool opens.
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
    if (inText) event.preventDefault(); // otherwise the text would lose the focus, and a phone close its keyboard
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
