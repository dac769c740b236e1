// @ts-check
/**
 * The page's appearance: font, size, width and spacing of the text; focus mode, which shows only text and drafts; and
 * the line shown in place of drafts while drafts are paused or the model loads. The panel has the fields.
 */

import { emit, finder, on } from "../shared/dom.js";
import { VIEW, attempt, keep, recall } from "../shared/memory.js";

const FOCUS = "polydraft.focus"; // in sessionStorage: one value per tab

export class Appearance {
  /** @param {HTMLElement} root @param {import("./start.js").Editor} editor */
  constructor(root, editor) {
    this.root = root;
    this.find = finder(root);
    this.editor = editor;
    /** Font, size, width and spacing, if the writer chooses none. @type {Record<string, string | number>} */
    this.usual = editor.setting.catalogue.look;
    /** Font, size, width and spacing. */
    this.values = { ...this.usual };
    /** Whether the writer has switched drafts off for now. */
    this.paused = false;
    this.loading = false;
    for (const [name, value] of Object.entries(recall(VIEW) ?? {})) {
      if (typeof value === typeof this.usual[name]) this.values[name] = value;
    }
    this.apply();
    this.find(".pd-leave-focus").addEventListener("click", () => this.focus(false));
    if (attempt(() => sessionStorage.getItem(FOCUS)) === "on") this.focus(true);
    on(root, "pd-status", ({ backend }) => {
      this.loading = backend === "loading";
      this.drawState();
    });
    this.addKeys();
  }

  /** @param {string} name @param {string | number} value */
  set(name, value) {
    this.values[name] = value;
    this.apply();
    keep(VIEW, this.values);
  }

  reset() {
    this.values = { ...this.usual };
    this.apply();
    keep(VIEW, null);
  }

  apply() {
    const { font, size, width, spacing } = this.values;
    this.root.dataset.font = String(font);
    this.root.style.setProperty("--size", String(Number(size) / 100));
    this.root.style.setProperty("--measure", `${Number(width) / 2}em`); // `width` is in letters of about half an em
    this.root.style.setProperty("--leading", String(spacing));
    this.editor.layout.measure();
  }

  /** Focus mode. @param {boolean} on */
  focus(on) {
    this.root.toggleAttribute("data-focus", on);
    attempt(() => sessionStorage.setItem(FOCUS, on ? "on" : "off"));
    this.find(".pd-leave-focus").hidden = !on;
    this.editor.layout.measure();
    this.editor.textarea.focus();
  }

  togglePause() {
    this.paused = !this.paused;
    this.editor.drafts.pause(this.paused);
    this.drawState();
    this.editor.textarea.focus();
    emit(this.root, "pd-appearance");
  }

  drawState() {
    const line = this.find(".pd-state");
    line.hidden = !this.paused && !this.loading;
    if (this.paused) line.innerHTML = `Drafts are paused. ${this.editor.keys.caps("pause")} brings them back.`;
    else if (this.loading) line.textContent = "Starting…";
  }

  addKeys() {
    this.editor.keys.add(
      {
        id: "pause", usual: "Alt+0", does: "Pause drafts, or bring them back", everywhere: true,
        run: () => {
          this.togglePause();
          return true;
        },
      },
      {
        id: "focus", usual: "Alt+Enter", does: "Focus mode: text and drafts only", everywhere: true,
        run: () => {
          this.focus(!this.root.hasAttribute("data-focus"));
          return true;
        },
      },
    );
  }
}
