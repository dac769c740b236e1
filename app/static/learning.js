// @ts-check
/**
 * Learning from use: a picked draft and a finished paragraph go to the stores that learn. Nothing does while the tab is
 * incognito, and nothing that holds a character typed in incognito ever does; see privacy.js. Which stores learn is the
 * server's to know; this only asks it, so as to send nothing in vain.
 *
 * A draft counts as picked once the writing goes on with it: taken and undone at once, it teaches nothing. A paragraph
 * is finished when Enter ends it, or when the text is copied or downloaded.
 */

import { isIncognito, setIncognito } from "./memory.js";
import { getJson, postJson } from "./transport.js";

/** @typedef {import("./editor.js").Editor} Editor */

const KEPT_FOR = 10_000; // ms that the answer to "which stores learn?" is believed
const CONTEXT = 6; // words before a picked draft that are learned with it
const LONGEST = 60_000; // characters of a paragraph; more is no writing
const WAITING = 50; // things to learn that are kept while the server cannot take them

export class Learning {
  /**
   * @param {HTMLElement} root
   * @param {Editor} editor
   */
  constructor(root, editor) {
    this.editor = editor;
    this.textarea = editor.textarea;
    this.incognito = isIncognito();
    /** The stores that learn; null while nobody has asked. @type {string[] | null} */
    this.stores = null;
    this.asked = -1e9;
    /** A draft that was just taken. @type {{at: number, text: string, phrase: string} | null} */
    this.picked = null;
    /** Paragraphs that are not to be learned (again). @type {Set<string>} */
    this.done = new Set();
    /** @type {{text: string, finished: boolean}[]} */
    this.queue = [];
    this.sending = false;

    this.button = /** @type {HTMLButtonElement} */ (root.querySelector(".pd-incognito"));
    this.sign = /** @type {HTMLElement} */ (root.querySelector(".pd-learns"));
    this.button.addEventListener("click", () => this.switchIncognito(!this.incognito));
    root.addEventListener("pd-taken", (event) => this.taken(/** @type {CustomEvent} */ (event).detail));
    this.textarea.addEventListener("input", (event) => this.input(/** @type {InputEvent} */ (event)));
    for (const name of ["copy", "download"]) {
      root.querySelector(`[data-do=${name}]`)?.addEventListener("click", () => this.finishAll());
    }
    addEventListener("focus", () => this.stores && this.ask());
    this.draw();
  }

  /** @param {boolean} on */
  switchIncognito(on) {
    this.incognito = this.editor.incognito = on;
    setIncognito(on);
    this.picked = null;
    this.queue.length = 0;
    this.editor.forgetDrafts();
    this.draw();
  }

  draw() {
    this.button.setAttribute("aria-pressed", String(this.incognito));
    const names = this.stores ?? [];
    this.sign.hidden = !names.length;
    this.sign.textContent = !names.length ? "" : this.incognito ? "Learning paused" : `Learning into ${listed(names)}`;
    this.sign.classList.toggle("pd-paused", this.incognito);
  }

  /** Ask which stores learn, unless that was asked a moment ago. */
  async ask({ anew = false } = {}) {
    if (!anew && performance.now() - this.asked < KEPT_FOR) return;
    this.asked = performance.now();
    try {
      this.stores = (await getJson("/api/stores/learning")).learning;
    } catch {
      // The model is loading, or the server is away, which the editor tells. Asked again later.
      this.stores = null;
    }
    this.draw();
    this.send();
  }

  // ---------------------------------------------------------------- what is written

  /** @param {{before: string, text: string}} taken */
  taken({ before, text }) {
    this.settlePick();
    if (this.incognito) return;
    const from = Math.max(before.lastIndexOf("\n") + 1, this.editor.privacy.publicFrom(before.length));
    const context = before.slice(from).match(new RegExp(`(?:\\S+\\s+){0,${CONTEXT - 1}}\\S*\\s*$`))?.[0] ?? "";
    this.picked = { at: before.length, text, phrase: (context + text).trim() };
  }

  /** The writing goes on: what was picked before is learned if it still stands. */
  settlePick() {
    const { picked } = this;
    this.picked = null;
    if (!picked || this.incognito) return;
    const { at, text, phrase } = picked;
    const stands = this.textarea.value.slice(at, at + text.length) === text;
    if (stands && !this.editor.privacy.hides(at, at + text.length)) this.learn(phrase, false);
  }

  /** @param {InputEvent} event */
  input({ inputType }) {
    this.ask();
    // The draft's own insertion comes before the event that tells it was taken.
    this.settlePick();
    if (inputType !== "insertLineBreak" && inputType !== "insertParagraph") return;
    const { value, selectionStart } = this.textarea;
    const end = value.slice(0, selectionStart).replace(/\n$/, "").length;
    this.finish(value.lastIndexOf("\n", end - 1) + 1, end);
  }

  /** The whole text is used: its last paragraph is finished too. */
  finishAll() {
    this.settlePick();
    const text = this.textarea.value.trimEnd();
    this.finish(text.lastIndexOf("\n") + 1, text.length);
  }

  /**
   * A paragraph is finished.
   * @param {number} start
   * @param {number} end
   */
  finish(start, end) {
    const paragraph = this.textarea.value.slice(start, end).trim();
    if (!paragraph || this.incognito || this.editor.privacy.hides(start, end) || this.done.has(paragraph)) return;
    this.done.add(paragraph);
    this.learn(paragraph, true);
  }

  // ---------------------------------------------------------------- sending

  /**
   * @param {string} text
   * @param {boolean} finished
   */
  learn(text, finished) {
    this.queue.push({ text: text.slice(-LONGEST), finished });
    if (this.queue.length > WAITING) this.queue.shift();
    this.send();
  }

  async send() {
    if (this.stores?.length === 0) this.queue.length = 0;
    if (this.sending || !this.stores) return;
    this.sending = true;
    try {
      while (this.queue.length && !this.incognito) {
        const { stores } = await postJson("/api/stores/learn", this.queue[0]);
        this.queue.shift();
        if (stores.join() !== this.stores?.join()) {
          this.stores = stores;
          this.draw();
        }
        // Answers kept from before know nothing of it.
        this.editor.forgetAnswers();
      }
    } catch {
      // A store is being written by somebody else, or the server is away: again with the next.
    } finally {
      this.sending = false;
    }
  }
}

/** @param {string[]} names */
function listed(names) {
  return names.length > 2 ? `${names.length} stores` : names.join(", ");
}
