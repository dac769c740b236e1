// @ts-check
/**
 * Learning from use: sends drafts that were taken and finished paragraphs to the personal stores that learn. In incognito
 * nothing is sent, and a text that contains a character typed in incognito is never sent; see privacy.js. The server
 * knows which stores learn; the page requests that list, so that it sends nothing if there are none.
 *
 * A taken draft is sent once the writer has typed on without undoing it. A paragraph is finished when Enter ends it, or
 * when the text is copied or downloaded.
 */

import { wellFormed } from "./drafting.js";
import { on, onDo, part, setText } from "../shared/dom.js";
import { setIncognito } from "../shared/memory.js";
import { getJson, postJson } from "../shared/transport.js";

const LASTS = "Incognito: what you write now is kept in this tab alone, and is gone when the tab closes. Switch incognito off to keep it.";
// Tells the other tabs of this browser that text was removed from a personal store: their drafts may contain it.
const removals = new BroadcastChannel("polydraft.removals");
const KEPT_FOR = 10_000; // ms for which the list of stores that learn is cached
const CONTEXT = 6; // words before a taken draft that are learned with it
const LONGEST = 60_000; // characters of a paragraph that are sent
const WAITING = 50; // texts that are queued while the server cannot receive them

export class Learning {
  /**
   * @param {HTMLElement} root
   * @param {{textarea: HTMLTextAreaElement, privacy: import("./privacy.js").PrivateText, incognito: {on: boolean}}} text
   * @param {{forgetAnswers: () => void, forgetDrafts: () => void, forgetTab: () => void}} drafts
   */
  constructor(root, { textarea, privacy, incognito }, drafts) {
    this.textarea = textarea;
    this.privacy = privacy;
    this.incognito = incognito;
    this.drafts = drafts;
    /** The stores that learn; null if not known. @type {string[] | null} */
    this.stores = null;
    /** When the list of stores was last requested, in ms. */
    this.requestedAt = -1e9;
    this.requests = 0;
    /** A draft that was just taken, and where. @type {{at: number, text: string, phrase: string} | null} */
    this.picked = null;
    /** Paragraphs that were sent. @type {Set<string>} */
    this.done = new Set();
    /** @type {{text: string, finished: boolean}[]} */
    this.queue = [];
    this.sending = false;
    /** The server's mark of the newest list: it differs after text was removed. @type {string | undefined} */
    this.mark = undefined;

    this.button = /** @type {HTMLButtonElement} */ (root.querySelector(".pd-incognito"));
    this.lasts = root.querySelector(".pd-lasts");
    this.sign = part(root, ".pd-learns");
    this.button.addEventListener("click", () => this.switchIncognito(!incognito.on));
    on(root, "pd-taken", (taken) => this.taken(taken));
    root.addEventListener("pd-dropped", () => this.drop());
    removals.addEventListener("message", () => drafts.forgetDrafts());
    this.textarea.addEventListener("input", (event) => this.input(/** @type {InputEvent} */ (event)));
    onDo(root, { copy: () => this.finishAll(), download: () => this.finishAll() });
    // Another tab may have removed text, and have been closed before it could tell.
    addEventListener("focus", () => this.stores && this.refresh({ anew: true }));
    this.draw();
  }

  /** @param {boolean} on */
  switchIncognito(on) {
    this.incognito.on = on;
    setIncognito(on);
    this.drafts.forgetTab();
    this.draw();
  }

  /** Text was removed from a store, in this tab. */
  removed() {
    this.drafts.forgetDrafts();
    removals.postMessage(null);
  }

  /** Drop what waits to be learned: it may contain text that is now private or forgotten. */
  drop() {
    this.picked = null;
    this.queue.length = 0;
  }

  draw() {
    this.button.setAttribute("aria-pressed", String(this.incognito.on));
    setText(this.lasts, this.incognito.on ? LASTS : "");
    const names = this.stores ?? [];
    this.sign.hidden = !names.length;
    this.sign.textContent = !names.length ? "" : this.incognito.on ? "Learning paused" : `Learning into ${listed(names)}`;
    this.sign.classList.toggle("pd-paused", this.incognito.on);
  }

  /** Request the list of stores that learn, unless it is still cached. */
  async refresh({ anew = false } = {}) {
    if (!anew && performance.now() - this.requestedAt < KEPT_FOR) return;
    this.requestedAt = performance.now();
    const request = ++this.requests;
    /** @type {string[] | null} */
    let stores = null;
    try {
      const answer = await getJson("/api/stores/learning");
      stores = answer.learning;
      if (this.mark !== undefined && answer.removed !== this.mark) this.drafts.forgetDrafts();
      this.mark = answer.removed;
    } catch {
      // The model is loading, or the server cannot be reached; the editor shows a notice. A later input tries again.
    }
    if (request !== this.requests) return; // a later request has the newer list
    this.stores = stores;
    this.draw();
    this.send();
  }

  // ---------------------------------------------------------------- texts to learn

  /** @param {{before: string, text: string}} taken */
  taken({ before, text }) {
    this.settlePick();
    if (this.incognito.on) return;
    const from = Math.max(before.lastIndexOf("\n") + 1, this.privacy.publicFrom(before.length));
    const context = before.slice(from).match(new RegExp(`(?:\\S+\\s+){0,${CONTEXT - 1}}\\S*\\s*$`))?.[0] ?? "";
    this.picked = { at: before.length, text, phrase: (context + text).trim() };
  }

  /** The writer types on: learn the draft taken before, unless it was undone. */
  settlePick() {
    const { picked } = this;
    this.picked = null;
    if (!picked || this.incognito.on) return;
    const { at, text, phrase } = picked;
    const unchanged = this.textarea.value.slice(at, at + text.length) === text;
    if (unchanged && !this.privacy.hides(at, at + text.length)) this.learn(phrase, false);
  }

  /** @param {InputEvent} event */
  input({ inputType }) {
    this.refresh();
    // The input event of a draft's insertion comes before its pd-taken event.
    this.settlePick();
    if (inputType !== "insertLineBreak" && inputType !== "insertParagraph") return;
    const { value, selectionStart } = this.textarea;
    const end = value.slice(0, selectionStart).replace(/\n$/, "").length;
    const start = value.lastIndexOf("\n", end - 1) + 1;
    this.finish(value.slice(start, end), this.privacy.hides(start, end));
  }

  /** The text was copied or downloaded: its last paragraph is finished too. */
  finishAll() {
    this.settlePick();
    const text = this.textarea.value.trimEnd();
    const start = text.lastIndexOf("\n") + 1;
    this.finish(text.slice(start), this.privacy.hides(start, text.length));
  }

  /**
   * Learn a finished paragraph.
   * @param {string} text
   * @param {boolean} isPrivate whether a character in it is private
   */
  finish(text, isPrivate) {
    const paragraph = text.trim();
    if (!paragraph || this.incognito.on || isPrivate || this.done.has(paragraph)) return;
    this.done.add(paragraph);
    this.learn(paragraph, true);
  }

  // ---------------------------------------------------------------- sending

  /** @param {string} text @param {boolean} finished */
  learn(text, finished) {
    this.queue.push({ text: wellFormed(text.slice(-LONGEST)), finished });
    if (this.queue.length > WAITING) this.queue.shift();
    this.send();
  }

  async send() {
    if (this.stores?.length === 0) this.queue.length = 0;
    if (this.sending || !this.stores) return;
    this.sending = true;
    try {
      while (this.queue.length && !this.incognito.on) {
        const { stores } = await postJson("/api/stores/learn", this.queue[0]);
        this.queue.shift();
        if (stores.join() !== this.stores?.join()) {
          this.stores = stores;
          this.draw();
        }
        this.drafts.forgetAnswers(); // cached answers were drafted without it
      }
    } catch {
      // Another program is writing to a store, or the server cannot be reached: the next text tries again.
    } finally {
      this.sending = false;
    }
  }
}

/** @param {string[]} names */
function listed(names) {
  return names.length > 2 ? `${names.length} stores` : names.join(", ");
}
