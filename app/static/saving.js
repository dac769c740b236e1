// @ts-check
/** Keeps the text: half a second after each change, and before the page goes. */

import { keepText } from "./memory.js";
import { Timers } from "./timers.js";

const SAVE_AFTER = 500; // ms without a change until the text is stored

export class Saving {
  /**
   * @param {import("./editor.js").Editor} editor
   */
  constructor(editor) {
    this.editor = editor;
    this.timers = new Timers();
    this.stored = editor.textarea.value;
    editor.root.addEventListener("pd-text", () => this.timers.later("save", SAVE_AFTER, () => this.now()));
    addEventListener("pagehide", () => this.now());
    addEventListener("visibilitychange", () => document.hidden && this.now());
  }

  now() {
    this.timers.stop("save");
    const text = this.editor.textarea.value;
    if (text === this.stored) return;
    this.stored = text;
    if (keepText(text)) this.editor.notice("storage", null);
    else {
      this.editor.notice("storage", {
        message: "This text is too long for the browser to remember.",
        fix: "Download it before you close the page.",
      });
    }
  }
}
