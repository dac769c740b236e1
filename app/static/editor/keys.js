// @ts-check
/** The keys for drafts: their handlers, the key help, the hints below the list, and the description for screen readers. */

import { finder, keyCaps } from "../shared/dom.js";
import { MAC } from "../shared/platform.js";

/** @typedef {{key: string, code: string, plain: boolean, onlyAlt: boolean, onlyCtrl: boolean,
 *            altShift: boolean, controlCommand: boolean, event: KeyboardEvent}} Pressed */

/**
 * One line of the key help and the handler of its keys. `handle` returns whether it used the key; the browser handles a
 * key that no handler uses. `hint`: the text in the line of hints, if the key is listed there.
 * @typedef {{keys: string[], does: string, hint?: string, hintKeys?: string[], handle?: (pressed: Pressed) => boolean}} Key
 */

export class Keys {
  /**
   * @param {HTMLElement} root
   * @param {HTMLTextAreaElement} textarea
   * @param {(time: number) => void} pressed called with the time of every key down event in the text, before its handlers
   */
  constructor(root, textarea, pressed) {
    this.root = root;
    this.pressed = pressed;
    /** @type {Key[]} */
    this.keys = [];
    textarea.addEventListener("keydown", (event) => this.down(event));
  }

  /**
   * Add keys that work while the text has the focus.
   * @param {Key[]} keys
   */
  add(...keys) {
    this.keys.push(...keys);
    this.describe();
  }

  /** @param {KeyboardEvent} event */
  down(event) {
    if (event.isComposing || event.keyCode === 229) return;
    this.pressed(event.timeStamp);
    const { key, code, altKey, ctrlKey, metaKey, shiftKey } = event;
    const pressed = {
      key, code, event,
      plain: !altKey && !ctrlKey && !metaKey && !shiftKey,
      onlyAlt: altKey && !ctrlKey && !metaKey && !shiftKey && !event.getModifierState("AltGraph"),
      onlyCtrl: ctrlKey && !altKey && !metaKey && !shiftKey,
      altShift: altKey && shiftKey && !ctrlKey && !metaKey && !event.getModifierState("AltGraph"),
      controlCommand: ctrlKey && metaKey && !altKey && !shiftKey,
    };
    if (this.keys.some(({ handle }) => handle?.(pressed))) event.preventDefault();
  }

  /** Write the key help, the hints and the description for screen readers. */
  describe() {
    const find = finder(this.root);
    find(".pd-keys dl").innerHTML = this.keys
      .map(({ keys, does }) => `<div><dt>${keyCaps(keys)}</dt><dd>${does}</dd></div>`)
      .join("");
    find(".pd-hints").innerHTML =
      this.keys
        .filter(({ hint }) => hint)
        .map(({ keys, hint, hintKeys }) => `<span>${keyCaps(hintKeys ?? keys)} ${hint}</span>`)
        .join("") +
      `<span class="pd-legend"><span class="pd-mine">underlined</span>: yours</span>` +
      `<span class="pd-percent" title="How likely you are to continue this way">how likely</span>`;
    find("#pd-how").textContent =
      `Drafts appear while you write. ${this.keys.map(({ keys, does }) => `${keys.join(" ")}: ${does}.`).join(" ")}`;
  }
}

/**
 * The keys for drafts. Digits are identified by `code`, the key's position on the keyboard: Shift and Option change the
 * character, and on French and Czech keyboards the digits themselves need Shift. Conflicts with other uses:
 *
 * - AltGr does not count as Alt: it types characters on most European layouts (it reports Control and Alt together, or
 *   AltGraph; neither matches Alt alone).
 * - Alt+digit and Alt+Shift+digit: Chrome and Firefox on Linux switch tabs with Alt+digit, but a page may use the key.
 *   Neither uses it with Shift, nor do Windows, GNOME and KDE (they use Super). Firefox uses Alt+Shift for access keys,
 *   and this page has none. Windows switches keyboard layouts with Alt+Shift only if no key is pressed in between. Where
 *   a Linux desktop switches as soon as both are down, Alt+arrows and then Ctrl+→ do the same.
 * - Digits of the keypad are not used with Shift: with Num Lock they turn into arrows then.
 * - macOS types characters with Option and a digit, with Shift and without; the page uses them only while drafts are shown.
 * - Alt+← is "back" in browsers; the page uses it only after a draft was taken. On a Mac Option+← still moves by a word.
 *
 * @param {{field: import("./text_field.js").TextField, drafts: import("./drafts_controller.js").DraftsController,
 *          view: import("./drafts_view.js").DraftsView, taking: import("./taking.js").Taking,
 *          revisiting: import("./revisiting.js").Revisiting}} parts
 * @returns {Key[]}
 */
export function draftKeys({ field, drafts, view, taking, revisiting }) {
  const shown = () => drafts.rows.all.length > 0;
  const word = MAC ? ["⌥", "→"] : ["Ctrl", "→"];
  const digit = (/** @type {string} */ code, /** @type {RegExp} */ pattern) => Number(code.match(pattern)?.[1] ?? 0);
  return [
    {
      keys: ["Tab"],
      does: "Take the best draft, or the highlighted one",
      hint: "take",
      handle({ key, plain }) {
        if (key !== "Tab" || !plain || !field.engaged) return false;
        const { open, readable } = view;
        if (open) return !readable || taking.take(readable.i, readable.length);
        // Tab pressed for a ghost that has just disappeared must not move the focus out of the text.
        return drafts.request !== null && performance.now() - field.lastInput < 600;
      },
    },
    {
      keys: word,
      does: "Take one word of it; without a draft, move by a word",
      hint: "a word",
      handle({ key, onlyAlt, onlyCtrl }) {
        const forward = view.ghost.line.dir === "rtl" ? "ArrowLeft" : "ArrowRight";
        return (MAC ? onlyAlt : onlyCtrl) && key === forward && taking.takeWord(view.active);
      },
    },
    {
      keys: MAC ? ["⌥", "1…9"] : ["Alt", "1…9"],
      does: "Take the draft with that number",
      hint: "that one",
      handle({ code, onlyAlt }) {
        const n = onlyAlt ? digit(code, /^(?:Digit|Numpad)([1-9])$/) : 0;
        if (!n || !shown()) return false;
        taking.take(n - 1);
        return true;
      },
    },
    {
      keys: MAC ? ["⌥", "⇧", "1…9"] : ["Alt", "Shift", "1…9"],
      does: "Take the first word of the draft with that number",
      hint: "its first word",
      hintKeys: MAC ? ["⌥", "⇧", "1…9"] : ["Alt", "⇧", "1…9"],
      handle({ code, altShift }) {
        const n = altShift ? digit(code, /^Digit([1-9])$/) : 0;
        if (!n || !shown()) return false;
        taking.takeWord(n - 1);
        return true;
      },
    },
    {
      keys: MAC ? ["⌥", "↑ ↓"] : ["Alt", "↑ ↓"],
      does: "Move through the drafts; ↓ requests drafts if none are shown",
      handle({ key, onlyAlt }) {
        if (!onlyAlt || (key !== "ArrowDown" && key !== "ArrowUp")) return false;
        if (view.open) view.move(key === "ArrowDown" ? 1 : -1);
        else if (key === "ArrowDown") drafts.requestHere();
        else return false;
        field.engage(true);
        return true;
      },
    },
    {
      keys: MAC ? ["⌃", "⌘", "← →"] : ["Alt", "← →"],
      does: "Go back to a draft that you took and show its list again; taking another draft replaces it",
      handle({ key, onlyAlt, controlCommand }) {
        if (!(MAC ? controlCommand : onlyAlt) || (key !== "ArrowLeft" && key !== "ArrowRight")) return false;
        return revisiting.walk(key === "ArrowLeft" ? -1 : 1);
      },
    },
    {
      keys: ["Esc"],
      does: "Dismiss the drafts; then Tab leaves the editor",
      hint: "dismiss",
      handle({ key, plain }) {
        if (key !== "Escape" || !plain) return false;
        const { busy } = drafts;
        if (busy) drafts.dismiss();
        return busy;
      },
    },
    { keys: MAC ? ["⌘", "Z"] : ["Ctrl", "Z"], does: "Undo taking a draft" },
  ];
}
