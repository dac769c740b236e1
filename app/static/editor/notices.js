// @ts-check
/**
 * Messages to the writer: notices of problems, shown until the problem is solved; toasts, shown for a moment; and words
 * beside the drafts.
 */

import { newElement, on, part, setText } from "../shared/dom.js";
import { Timers } from "../shared/timers.js";

const FOREIGN = "This model writes English. In the panel, under This page, Model, you find others, for more languages.";

export class Notices {
  /** @param {HTMLElement} root @param {HTMLTextAreaElement} textarea */
  constructor(root, textarea) {
    this.timers = new Timers();
    this.box = part(root, ".pd-notice");
    this.toastBox = part(root, ".pd-toast");
    this.documents = part(root, "#pd-documents");
    this.live = part(root, ".pd-live");
    this.changed = part(root, ".pd-changed");
    /** Whether this document's writer knows that the model writes another language. */
    this.saidForeign = false;
    on(root, "pd-text", ({ opened }) => (this.saidForeign &&= !opened));
    /** The action of the toast's button. */
    this.undo = () => {};
    this.toastBox.querySelector("button")?.addEventListener("click", () => {
      textarea.focus();
      this.toastBox.hidden = true;
      this.undo();
    });
  }

  /**
   * Show a problem, or remove it (null). At most one problem of each kind is shown.
   * @param {"server" | "connection" | "storage" | "options"} kind
   * @param {{message: string, fix?: string} | null} problem
   */
  notice(kind, problem) {
    const { box } = this;
    /** @type {HTMLElement | null} */
    let line = box.querySelector(`[data-kind=${kind}]`);
    if (!problem) line?.remove();
    else {
      if (!line) {
        line = newElement("p", "", "<b></b> <span></span>");
        line.dataset.kind = kind;
        box.append(line);
      }
      setText(line.firstElementChild, problem.message);
      setText(line.lastElementChild, problem.fix ?? "");
    }
    box.hidden = !box.childElementCount;
  }

  /**
   * Show a sentence for a moment.
   * @param {string} message
   * @param {{undo?: () => void, long?: boolean}} options `undo`: the action of a button “Undo”; `long`: show it for 8 s
   */
  toast(message, { undo, long = Boolean(undo) } = {}) {
    const { toastBox } = this;
    toastBox.toggleAttribute("data-beside", this.documents.hidden === false);
    toastBox.hidden = false;
    /** @type {HTMLElement} */ (toastBox.firstElementChild).textContent = message;
    /** @type {HTMLElement} */ (toastBox.lastElementChild).hidden = !undo;
    if (undo) this.undo = undo;
    this.timers.later("toast", long ? 8000 : 2500, () => (toastBox.hidden = true));
  }

  /** Say that a draft was not taken, because nobody can have read it. */
  justChanged() {
    this.changed.hidden = false;
    this.timers.later("changed", 2000, () => (this.changed.hidden = true));
  }

  /** Say once a document that its language is not the model's. */
  foreign() {
    if (this.saidForeign) return;
    this.saidForeign = true;
    this.toast(FOREIGN, { long: true });
  }

  /** Announce a message to screen readers only. @param {string} message */
  announce(message) {
    this.live.textContent = message;
  }
}
