// @ts-check
/**
 * Moving between the parts of a long text: the bar above the text, the keys that go beyond the part on the screen, and
 * deleting what separates two parts.
 */

import { finder, setText } from "../shared/dom.js";
import { MAC } from "../shared/platform.js";

const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "PageUp", "PageDown"];

/**
 * @param {HTMLElement} root
 * @param {import("./text_field.js").TextField} field
 */
export function setUpPartsBar(root, field) {
  const { parts, textarea } = field;
  const find = finder(root);
  const bar = find(".pd-parts");
  const which = find(".pt-which");
  const previous = find("[data-do=previous-part]");
  const next = find("[data-do=next-part]");

  function draw() {
    const { all, at, long } = parts;
    if (bar.hidden !== !long) {
      bar.hidden = !long;
      root.toggleAttribute("data-parts", long);
    }
    if (!long) return;
    setText(which, `Part ${at + 1} of ${all.length}`);
    // Not disabled: that would take the focus from a button.
    previous.setAttribute("aria-disabled", String(at === 0));
    next.setAttribute("aria-disabled", String(at === all.length - 1));
  }

  /** Show another part where the writer left it. @param {1 | -1} by */
  function turn(by) {
    const there = parts.all[parts.at + by];
    if (!there) return;
    const { caret, scroll } = there.left ?? { caret: 0, scroll: 0 };
    parts.leave();
    field.go(parts.start(parts.at + by) + Math.min(caret, there.length));
    textarea.scrollTop = scroll;
  }

  /** Go over the border of the part, if there is one. @param {1 | -1} by */
  function cross(by) {
    const there = parts.all[parts.at + by];
    if (!there) return;
    parts.leave();
    field.go(parts.start(parts.at + by) + (by > 0 ? 0 : there.length));
  }

  textarea.addEventListener("keydown", (event) => {
    if (!parts.long || event.defaultPrevented || event.isComposing || event.shiftKey) return;
    const { key, altKey, ctrlKey, metaKey } = event;
    const first = MAC ? metaKey && key === "ArrowUp" : ctrlKey && key === "Home";
    const last = MAC ? metaKey && key === "ArrowDown" : ctrlKey && key === "End";
    if ((first && parts.at > 0) || (last && parts.at + 1 < parts.all.length)) {
      event.preventDefault();
      field.go(first ? 0 : parts.length);
      return;
    }
    const { selectionStart: at, selectionEnd: end, textLength } = textarea;
    if (!ARROWS.includes(key) || (altKey && !MAC) || at !== end) return;
    // A caret that such a key does not move is at the border of the part, or in its first or last line.
    setTimeout(() => {
      if (textarea.selectionStart !== at || textarea.selectionEnd !== at || textarea.textLength !== textLength) return;
      const sideways = key === "ArrowLeft" || key === "ArrowRight";
      if (sideways ? at === textLength : /Down$/.test(key)) cross(1);
      else if (sideways ? at === 0 : /Up$/.test(key)) cross(-1);
    });
  });

  // What separates two parts belongs to neither, so that the browser does not delete it.
  textarea.addEventListener("beforeinput", (event) => {
    const { inputType, cancelable, isComposing } = event;
    const { selectionStart, selectionEnd, textLength } = textarea;
    if (!parts.long || !cancelable || isComposing || selectionStart !== selectionEnd) return;
    const { at, all } = parts;
    if (/^delete.*Backward$/.test(inputType) && selectionStart === 0 && at > 0) {
      event.preventDefault();
      field.showPart(() => parts.join(at - 1));
      document.execCommand("delete");
    } else if (/^delete.*Forward$/.test(inputType) && selectionStart === textLength && at + 1 < all.length) {
      event.preventDefault();
      field.showPart(() => parts.join(at));
      document.execCommand("forwardDelete");
    }
  });

  previous.addEventListener("click", () => turn(-1));
  next.addEventListener("click", () => turn(1));
  for (const name of ["pd-part", "pd-text"]) root.addEventListener(name, draw);
  draw();
}
