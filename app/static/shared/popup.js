// @ts-check
/** A box over the page that a button opens. Esc, a click outside, and the button close it. */

import { dialogIsOpen, disclose } from "./dom.js";

export class Popup {
  /**
   * @param {HTMLButtonElement} button
   * @param {HTMLElement} box that it controls
   * @param {{opened?: () => void, back: () => void}} callbacks `back`: returns the focus to the text
   */
  constructor(button, box, { opened = () => {}, back }) {
    this.button = button;
    this.opened = opened;
    this.back = back;
    button.addEventListener("click", () => (box.hidden ? this.open() : this.close()));
    // In the capture phase, before the text uses Esc to dismiss drafts. A text field in the box handles Esc itself.
    addEventListener("keydown", (event) => {
      const { key, target } = event;
      const inField = target instanceof HTMLInputElement && target.type === "text" && box.contains(target);
      if (key !== "Escape" || box.hidden || inField || dialogIsOpen()) return;
      event.preventDefault();
      event.stopPropagation();
      this.close();
    }, true);
    document.addEventListener("pointerdown", ({ target }) => {
      const inside = target instanceof Node && (box.contains(target) || button.contains(target));
      if (!inside && !box.hidden) this.close({ focus: false });
    });
  }

  open() {
    disclose(this.button, true);
    this.opened();
  }

  close({ focus = true } = {}) {
    disclose(this.button, false);
    if (focus) this.back();
  }
}
