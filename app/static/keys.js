// @ts-check
/** The keys: what each does with the drafts, the key help, the hints below the list, and what a screen reader hears. */

import { keyCaps } from "./dom.js";
import { MAC } from "./platform.js";

/** @typedef {import("./editor.js").Editor} Editor */

/** @typedef {{key: string, code: string, plain: boolean, onlyAlt: boolean, onlyCtrl: boolean, event: KeyboardEvent}} Pressed */

/**
 * One line of the key help and what its keys do. `handle` says whether it used the key; a key that no line uses keeps
 * the meaning that browser and system give it. `hint`: the words for the line of hints, where it stands there.
 * @typedef {{keys: string[], does: string, hint?: string, hintKeys?: string[], handle?: (pressed: Pressed) => boolean}} Key
 */

export class Keys {
  /**
   * @param {HTMLElement} root
   * @param {Editor} editor
   */
  constructor(root, editor) {
    this.root = root;
    this.editor = editor;
    /** @type {Key[]} */
    this.keys = draftKeys(editor);
    this.describe();
    editor.textarea.addEventListener("keydown", (event) => this.down(event));
  }

  /**
   * Add a key that works while the text has the focus.
   * @param {Key} key
   */
  add(key) {
    this.keys.push(key);
    this.describe();
  }

  /** @param {KeyboardEvent} event */
  down(event) {
    if (event.isComposing || event.keyCode === 229) return;
    this.editor.pressed = event.timeStamp;
    const { key, code, altKey, ctrlKey, metaKey, shiftKey } = event;
    const pressed = {
      key, code, event,
      plain: !altKey && !ctrlKey && !metaKey && !shiftKey,
      onlyAlt: altKey && !ctrlKey && !metaKey && !shiftKey,
      onlyCtrl: ctrlKey && !altKey && !metaKey && !shiftKey,
    };
    if (this.keys.some(({ handle }) => handle?.(pressed))) event.preventDefault();
  }

  /** Write the key help, the hints and the description for screen readers. */
  describe() {
    const find = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (this.root.querySelector(selector));
    find(".pd-keys dl").innerHTML = this.keys
      .map(({ keys, does }) => `<div><dt>${keyCaps(keys)}</dt><dd>${does}</dd></div>`)
      .join("");
    find(".pd-hints").innerHTML =
      this.keys
        .filter(({ hint }) => hint)
        .map(({ keys, hint }) => `<span>${keyCaps(keys)} ${hint}</span>`)
        .join("") + `<span class="pd-legend"><span class="pd-mine">underlined</span>: yours</span>`;
    find("#pd-how").textContent =
      `Drafts appear while you write. ${this.keys.map(({ keys, does }) => `${keys.join(" ")}: ${does}.`).join(" ")}`;
  }
}

/**
 * @param {Editor} editor
 * @returns {Key[]}
 */
function draftKeys(editor) {
  const open = () => editor.rows.length > 0;
  return [
    {
      keys: ["Tab"],
      does: "Take the best draft, or the highlighted one",
      hint: "take",
      handle({ key, plain }) {
        if (key !== "Tab" || !plain) return false;
        if (open()) {
          editor.take(editor.active);
          return true;
        }
        // Tab pressed for a ghost that vanished a moment ago must not throw the writer out of the text.
        return editor.request !== null && performance.now() - editor.lastInput < 600;
      },
    },
    {
      keys: MAC ? ["⌥", "→"] : ["Ctrl", "→"],
      does: "Take one word",
      hint: "a word",
      handle({ key, onlyAlt, onlyCtrl }) {
        const forward = editor.ghost.line.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
        if (!(MAC ? onlyAlt : onlyCtrl) || key !== forward || !open()) return false;
        editor.takeWord();
        return true;
      },
    },
    {
      keys: MAC ? ["⌥", "1…9"] : ["Alt", "1…9"],
      does: "Take the draft with that number",
      hint: "that one",
      handle({ code, onlyAlt }) {
        // `code`, not `key`: with Option, a Mac's digit keys type other characters.
        const digit = onlyAlt ? code.match(/^(?:Digit|Numpad)([1-9])$/)?.[1] : undefined;
        if (!digit || !open()) return false;
        editor.take(Number(digit) - 1);
        return true;
      },
    },
    {
      keys: MAC ? ["⌥", "↑ ↓"] : ["Alt", "↑ ↓"],
      does: "Move through the drafts",
      hint: "choose",
      handle({ key, onlyAlt }) {
        if (!onlyAlt || (key !== "ArrowDown" && key !== "ArrowUp")) return false;
        if (open()) editor.move(key === "ArrowDown" ? 1 : -1);
        else if (key === "ArrowDown") {
          editor.dismissed = false;
          editor.ask({});
        } else return false;
        return true;
      },
    },
    {
      keys: ["Esc"],
      does: "Dismiss the drafts; then Tab leaves the editor",
      hint: "dismiss",
      handle({ key, plain }) {
        if (key !== "Escape" || !plain) return false;
        const busy = open() || editor.request !== null;
        if (busy) editor.dismiss();
        return busy;
      },
    },
    { keys: MAC ? ["⌘", "Z"] : ["Ctrl", "Z"], does: "Undo what was taken" },
  ];
}
