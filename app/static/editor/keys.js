// @ts-check
/**
 * The keys: which key does what, the key help in which the writer changes them, the line of hints below the list, and
 * the description for screen readers. combos.js names keys; draft_keys.js has the actions on drafts.
 */

import { caps, comboOf, matches, problemOf } from "./combos.js";
import { dialogIsOpen, finder, newButton, newElement, onDo } from "../shared/dom.js";
import { KEYS, TAKES, keep, recall } from "../shared/memory.js";
import { MAC } from "../shared/platform.js";

const LEARNED = 10; // taken drafts after which the line of hints is short

/**
 * An action and its key. `id`: the writer can change the key; without it the line only explains. `usual`, `mac`: the key
 * as combos.js names it. `does`: the line in the key help. `hint`: the text in the line of hints. `run` returns whether
 * it used the key, and gets the digit of a key such as “Alt+1…9”; the browser handles a key that no action uses.
 * `everywhere`: also outside the text. `shares`: another action may have the same key. `mirrored`: whether left and right
 * are exchanged now.
 * @typedef {{id?: string, usual: string, mac?: string, does: string, hint?: string, everywhere?: boolean, shares?: boolean,
 *            run?: (n: number) => boolean, mirrored?: () => boolean}} Key
 */

export class Keys {
  /**
   * @param {HTMLElement} root
   * @param {HTMLTextAreaElement} textarea
   * @param {(time: number) => void} pressed called with the time of every key down event in the text, before its actions
   */
  constructor(root, textarea, pressed) {
    this.root = root;
    this.find = finder(root);
    this.pressed = pressed;
    /** @type {Key[]} */
    this.keys = [];
    /** The writer's own keys by action. @type {Record<string, string>} */
    this.own = recall(KEYS) ?? {};
    this.takes = Number(recall(TAKES) ?? 0);
    /** The action whose next key is awaited. @type {Key | null} */
    this.changing = null;
    this.dialog = /** @type {HTMLDialogElement} */ (this.find("#pd-keys"));

    textarea.addEventListener("keydown", (event) => this.down(event, false));
    addEventListener("keydown", (event) => {
      if (!event.defaultPrevented && root.dataset.tab !== "stores") this.down(event, true);
    });
    this.dialog.addEventListener("keydown", (event) => this.capture(event), true);
    this.dialog.addEventListener("close", () => this.await(null));
    onDo(root, { keys: () => this.dialog.showModal(), "usual-keys": () => this.reset() });
    root.addEventListener("pd-reset", () => this.reset());
    root.addEventListener("pd-taken", () => {
      this.takes++;
      keep(TAKES, this.takes);
      if (this.takes === LEARNED) this.drawHints();
    });
  }

  /** Add actions. @param {Key[]} keys */
  add(...keys) {
    this.keys.push(...keys);
    this.describe();
  }

  /** The key of an action, as combos.js names it. @param {Key} key */
  comboOf({ id = "", usual, mac }) {
    const own = this.own[id];
    return typeof own === "string" ? own : (MAC && mac) || usual;
  }

  /** The caps of the key of an action, as HTML. @param {string} id */
  caps(id) {
    const key = this.keys.find((candidate) => candidate.id === id);
    return key ? caps(this.comboOf(key)) : "";
  }

  /**
   * @param {KeyboardEvent} event
   * @param {boolean} everywhere whether to run the actions that work outside the text, or the others
   */
  down(event, everywhere) {
    if (event.isComposing || event.keyCode === 229 || dialogIsOpen()) return;
    if (!everywhere) this.pressed(event.timeStamp);
    const combo = comboOf(event);
    const used = this.keys.some((key) => {
      if (!key.run || Boolean(key.everywhere) !== everywhere) return false;
      const n = matches(combo, this.comboOf(key), key.mirrored?.() ?? false);
      return n !== null && key.run(n);
    });
    if (used) event.preventDefault();
  }

  // ---------------------------------------------------------------- changing keys

  /** Await the new key of an action; null: of none. @param {Key | null} key */
  await(key) {
    this.changing = key;
    this.tell("");
    this.describe();
  }

  /** @param {KeyboardEvent} event */
  capture(event) {
    const { changing } = this;
    if (!changing) return;
    const combo = comboOf(event);
    if (!combo) return; // only Shift, Ctrl or Alt so far
    event.preventDefault();
    event.stopPropagation();
    if (combo === "Esc" && changing.id !== "dismiss") return this.finish();
    const digits = this.comboOf(changing).endsWith("1…9");
    const wanted = digits ? combo.replace(/[1-9]$/, "1…9") : combo;
    const problem = this.problem(changing, wanted, digits);
    if (problem) return this.tell(problem);
    this.own = { ...this.own, [changing.id ?? ""]: wanted };
    keep(KEYS, this.own);
    return this.finish();
  }

  /** End the change, with the focus on the button that began it. */
  finish() {
    const { changing } = this;
    this.await(null);
    this.focusOn(changing);
  }

  /** Focus the button that changes the key of an action. @param {Key | null} key */
  focusOn(key) {
    const at = this.keys.filter(({ id }) => id).findIndex((each) => each === key);
    /** @type {NodeListOf<HTMLElement>} */ (this.dialog.querySelectorAll("dl button"))[at]?.focus();
  }

  /**
   * Why an action cannot have this key; "" if it can.
   * @param {Key} changed
   * @param {string} combo
   * @param {boolean} digits whether it needs one of the keys 1 to 9
   */
  problem(changed, combo, digits) {
    if (digits && !combo.endsWith("1…9")) return "This needs a digit: hold Alt, Ctrl or Shift, and press 1.";
    const other = this.keys.find((key) => key !== changed && !key.shares && matches(combo.replace("1…9", "1"), this.comboOf(key), false) !== null);
    if (other) return `${plain(caps(combo))} is “${other.does}”. Change that one first.`;
    return problemOf(combo);
  }

  reset() {
    this.own = {};
    keep(KEYS, null);
    this.await(null);
  }

  /** @param {string} message */
  tell(message) {
    this.find(".ky-told").textContent = message;
  }

  // ---------------------------------------------------------------- help, hints, description

  /** Write the key help, the hints and the description for screen readers. */
  describe() {
    this.find("#pd-keys dl").replaceChildren(...this.keys.map((key) => this.line(key)));
    this.drawHints();
    this.find("#pd-how").textContent =
      `Drafts appear while you write: ${spoken(this.caps("take"))} takes the best one, ${spoken(this.caps("next"))} goes to the others, and the button Keys lists all keys.`;
    this.root.dataset.takeKey = plain(this.caps("take"));
    for (const cap of this.root.querySelectorAll(".pd-tab")) cap.textContent = this.root.dataset.takeKey;
  }

  /** @param {Key} key */
  line(key) {
    const awaited = key === this.changing;
    const shown = awaited ? "Press the key…" : caps(this.comboOf(key));
    const line = newElement("div", awaited ? "ky-awaited" : "", `<dt>${shown}</dt><dd><span></span></dd>`, { "dd span": key.does });
    if (!key.id) return line;
    const change = () => {
      this.await(awaited ? null : key);
      if (awaited) return;
      this.focusOn(key);
      this.tell(`Press the new key for “${key.does}”. Esc cancels.`);
    };
    line.lastElementChild?.append(awaited ? newButton("Cancel", change) : newButton("Change", change, { label: `Change the key: ${key.does}` }));
    return line;
  }

  drawHints() {
    const mine = `<span class="pd-legend"><span class="pd-mine">underlined</span>: yours</span>`;
    const hints = this.find(".pd-hints");
    if (this.takes >= LEARNED) {
      hints.innerHTML =
        `<span class="pd-few">${this.caps("take")} · ${this.caps("number")} · ` +
        `<button type="button" data-do="keys" tabindex="-1" title="All keys">?</button></span>${mine}`;
      return;
    }
    hints.innerHTML =
      this.keys.filter(({ hint }) => hint).map((key) => `<span>${caps(this.comboOf(key), true)} ${key.hint}</span>`).join("") +
      `${mine}<span class="pd-percent" title="How likely you are to continue this way">how likely</span>`;
  }
}

/** The text of caps. @param {string} html */
function plain(html) {
  return html.replace(/<\/kbd> <kbd>/g, "+").replace(/<[^>]*>/g, "");
}

/** The same in words, for screen readers. @param {string} html */
function spoken(html) {
  const arrows = { "→": "Right", "←": "Left", "↓": "Down", "↑": "Up", "⌥": "Option", "⌘": "Command", "⌃": "Control", "⇧": "Shift" };
  return plain(html).replace(/[→←↓↑⌥⌘⌃⇧]/g, (arrow) => arrows[/** @type {keyof typeof arrows} */ (arrow)]);
}
