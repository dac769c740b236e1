// @ts-check
/** The menu of a draft: the other button of a mouse, a long touch, or a key opens it at the row. */

import { newButton, newElement } from "../shared/dom.js";

const WORD = /[\p{L}\p{M}\p{N}]+(?:['’-][\p{L}\p{M}\p{N}]+)*/gu;
const MOST_SHOWN = 40; // characters of a phrase in the menu
const MARGIN = 8; // px between the menu and the edge of the window

/**
 * What a draft's menu offers to suggest never again: the word at a place, and the draft without its last marks.
 * @param {string} text of the draft
 * @param {number} at
 */
export function offered(text, at) {
  const words = [...text.matchAll(WORD)];
  const word = words.find(({ index, 0: found }) => at < index + found.length) ?? words.at(-1);
  const whole = text.trim().replace(/[^\p{L}\p{M}\p{N}]+$/u, "");
  return [...new Set([word?.[0] ?? "", whole])].filter(Boolean);
}

export class RowMenu {
  /**
   * @param {HTMLElement} root
   * @param {{refuse: (phrase: string) => void, look: (part: string) => void, open: () => void, back: () => void}} actions
   *   `refuse`: never suggest a phrase again; `look`: show what may come after a part of the draft; `open`: show the
   *   lists; `back`: return the focus to the text
   */
  constructor(root, { refuse, look, open, back }) {
    this.root = root;
    this.refuse = refuse;
    this.look = look;
    this.openLists = open;
    this.back = back;
    this.box = newElement("div", "pd-row-menu");
    this.box.setAttribute("role", "menu");
    this.box.setAttribute("aria-label", "This draft");
    this.box.hidden = true;
    root.append(this.box);
    addEventListener("keydown", (event) => this.key(event), true);
    document.addEventListener("pointerdown", ({ target }) => {
      if (!this.box.hidden && !(target instanceof Node && this.box.contains(target))) this.close(false);
    });
    root.addEventListener("pd-text", () => (this.box.hidden = true)); // the draft is that of another text
  }

  /**
   * @param {string} text of the draft
   * @param {number} at the character that is pointed at
   * @param {{x: number, y: number}} place in the window
   */
  open(text, at, { x, y }) {
    const phrases = offered(text, at);
    const items = phrases.map((phrase) => this.item(`Never suggest “${shortened(phrase)}”`, () => this.refuse(phrase)));
    const part = text.slice(0, text.slice(0, at + 1).search(/\s*\S*$/));
    this.box.replaceChildren(
      ...items, this.item("Never suggest…", this.openLists), this.item("What else could stand here", () => this.look(part)),
    );
    this.box.hidden = false;
    const { offsetWidth, offsetHeight } = this.box;
    this.box.style.left = `${Math.max(MARGIN, Math.min(x, innerWidth - offsetWidth - MARGIN))}px`;
    this.box.style.top = `${y + offsetHeight + MARGIN > innerHeight ? Math.max(MARGIN, y - offsetHeight) : y}px`;
    /** @type {HTMLElement} */ (this.box.firstElementChild).focus({ preventScroll: true });
  }

  /** @param {string} label @param {() => void} action */
  item(label, action) {
    const button = newButton(label, () => {
      this.close(true);
      action();
    });
    button.role = "menuitem";
    return button;
  }

  /** @param {boolean} focus whether the text gets the focus */
  close(focus) {
    this.box.hidden = true;
    if (focus) this.back();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (this.box.hidden) return;
    const items = /** @type {HTMLElement[]} */ ([...this.box.children]);
    const at = items.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    const steps = /** @type {Record<string, number>} */ ({ ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 });
    if (event.key in steps) items.at(steps[event.key] % items.length)?.focus();
    else if (event.key === "Escape" || event.key === "Tab") this.close(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/** @param {string} phrase */
function shortened(phrase) {
  return phrase.length > MOST_SHOWN ? `${phrase.slice(0, MOST_SHOWN - 1).trimEnd()}…` : phrase;
}
