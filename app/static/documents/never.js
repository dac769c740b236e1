// @ts-check
/** The section *Never suggest*: words and phrases that no draft contains, in all documents and in the open one. */

import { setText } from "../shared/dom.js";
import { NEVER, keep, recall } from "../shared/memory.js";
import { plural } from "../shared/wording.js";

export const MOST_NEVER = 1 << 18; // UTF-16 units of a document's list: the limit of app/documents/notes.py
const MOST = 10_000; // phrases of a request, and characters of one: the limits of core/phrases.py
const LONGEST = 200;
// A * that does not end a word, where it would stand for any ending.
const ALONE = /(?<![\p{L}\p{M}\p{N}\\])\*|(?<!\\)\*(?=[\p{L}\p{M}\p{N}])/u;

/** The phrases of a list, one a line. @param {string} text */
export function phrasesOf(text) {
  const lines = text.split("\n").map((line) => line.trim());
  return [...new Set(lines.filter((line) => line && !line.startsWith("#")))];
}

/** Why a list cannot be used; "" if it can. @param {string} text */
export function problemOf(text) {
  if (text.length > MOST_NEVER) {
    return `This list has ${text.length.toLocaleString("en")} characters, and may have ${MOST_NEVER.toLocaleString("en")}. Shorten it.`;
  }
  const phrases = phrasesOf(text);
  if (phrases.length > MOST) return `This list has ${phrases.length.toLocaleString("en")} phrases, and may have ${MOST.toLocaleString("en")}. Shorten it.`;
  const long = phrases.find((phrase) => phrase.length > LONGEST);
  if (long) return `“${long.slice(0, 30)}…” is longer than ${LONGEST} characters. Shorten it.`;
  const alone = phrases.find((phrase) => ALONE.test(phrase));
  return alone ? `In “${alone}” a * does not end a word. It stands for any ending, as in form*.` : "";
}

export class Never {
  /**
   * @param {HTMLElement} root
   * @param {import("./documents.js").Documents} documents
   * @param {import("../editor/drafts_controller.js").DraftsController} drafts
   */
  constructor(root, documents, drafts) {
    this.documents = documents;
    this.drafts = drafts;
    this.section = /** @type {HTMLDetailsElement} */ (root.querySelector(".dc-never"));
    this.boxes = /** @type {HTMLTextAreaElement[]} */ ([...this.section.querySelectorAll("textarea")]);
    this.shown = "";
    /** The list of all documents. @type {string} */
    this.all = "";
    this.lists = [
      { get: () => this.all, set: (/** @type {string} */ text) => keep(NEVER, { text: (this.all = text) }) },
      { get: () => documents.current.never, set: (/** @type {string} */ never) => documents.change({ never }) },
    ];
    this.boxes.forEach((box, n) => {
      box.addEventListener("input", () => {
        if (!problemOf(box.value)) this.lists[n].set(box.value);
        this.draw();
      });
      box.addEventListener("change", () => drafts.settingsChanged());
    });
    addEventListener("storage", ({ key }) => key === NEVER && this.recall()); // another tab has changed it
    root.addEventListener("pd-document", () => this.draw());
    this.recall();
  }

  recall() {
    const { text } = recall(NEVER) ?? {};
    this.all = typeof text === "string" && !problemOf(text) ? text : "";
    this.draw();
  }

  draw() {
    const { id } = this.documents.current;
    const other = id !== this.shown;
    if (other) this.section.open = false;
    this.shown = id;
    this.boxes.forEach((box, n) => {
      const problem = problemOf(box.value);
      if (box.value !== this.lists[n].get() && (!problem || (other && n === 1))) box.value = this.lists[n].get();
      const line = /** @type {HTMLElement} */ (box.nextElementSibling);
      const now = problemOf(box.value);
      line.hidden = !now;
      setText(line, now && `${now} Until you correct this, the earlier list is used.`);
      box.toggleAttribute("aria-invalid", Boolean(now));
    });
    const { length } = this.phrases;
    setText(this.section.querySelector("summary small"), length ? plural(length, "phrase") : "");
  }

  /** The phrases of both lists. */
  get phrases() {
    return phrasesOf(this.lists.map(({ get }) => get()).join("\n")).slice(0, MOST);
  }

  /** What the lists decide in every request for drafts. @returns {{never?: string[]}} */
  requestFields() {
    const { phrases } = this;
    return phrases.length ? { never: phrases } : {};
  }

  /**
   * Add a phrase to the list of all documents.
   * @param {string} phrase
   * @returns {() => void} takes it out again
   */
  add(phrase) {
    const before = this.all;
    const change = (/** @type {string} */ text) => {
      this.lists[0].set(text);
      this.draw();
      this.drafts.settingsChanged();
    };
    change([...phrasesOf(before), phrase].join("\n"));
    return () => change(before);
  }
}
