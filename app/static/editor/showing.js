// @ts-check
/**
 * The setting *Show drafts*: when they save time, always, after a pause, or on demand. Drafts are computed at every key
 * except on demand; the setting decides what is displayed.
 *
 * Until the writer's speed is known, a page without a choice shows drafts always, as a newcomer expects. Then, with the
 * next document, one line says that drafts now appear when they save time, once.
 */

import { emit, finder, on } from "../shared/dom.js";
import { attempt } from "../shared/memory.js";

const KEPT = "polydraft.show";
const TOLD = "polydraft.show.told"; // whether the line was shown
const TOLD_FOR = 60; // keys until the line disappears
const LEAST = 1; // minutes that are worth a word

const CHOICES = ["time", "always", "pause", "demand"];

/** @typedef {"time" | "always" | "pause" | "demand"} When */

export class Showing {
  /**
   * @param {HTMLElement} root
   * @param {import("./pace.js").Pace} pace
   * @param {() => void} changed called when another setting is in force
   */
  constructor(root, pace, changed) {
    const find = finder(root);
    this.root = root;
    this.pace = pace;
    this.changed = changed;
    /** Whether the writer has switched drafts off for now. */
    this.paused = false;
    this.line = find(".pd-when");
    this.time = find(".pd-time");
    /** The writer's choice; null: none so far. @type {When | null} */
    this.chosen = null;
    this.told = attempt(() => localStorage.getItem(TOLD)) === "yes";
    this.keysLeft = 0;
    const kept = attempt(() => localStorage.getItem(KEPT));
    if (CHOICES.includes(kept ?? "")) this.chosen = /** @type {When} */ (kept);
    this.line.querySelector("button")?.addEventListener("click", () => this.choose("always"));
    this.time.querySelector("button")?.addEventListener("click", () => this.choose("demand"));
    on(root, "pd-text", ({ opened }) => {
      if (opened) {
        if (this.introduce()) this.changed();
      } else if (this.keysLeft && !--this.keysLeft) this.draw();
    });
    root.addEventListener("pd-reset", () => this.choose(null));
    this.introduce();
    this.draw();
  }

  /** When drafts are displayed. @returns {When} */
  get when() {
    return this.paused ? "demand" : this.setting;
  }

  /** The writer's choice, or else what is in force without one. @returns {When} */
  get setting() {
    return this.chosen ?? (this.told ? "time" : "always");
  }

  /** @param {When | null} when null: the default */
  choose(when) {
    this.chosen = when;
    this.keysLeft = 0;
    attempt(() => (when ? localStorage.setItem(KEPT, when) : localStorage.removeItem(KEPT)));
    this.draw();
    this.changed();
  }

  /**
   * A document is opened: if the writer's speed is known by now, the default is in force from here on, and a line says so.
   * @returns {boolean} whether it has just come into force
   */
  introduce() {
    if (this.chosen || this.told || !this.pace.known || this.pace.isIncognito()) return false;
    this.told = true;
    attempt(() => localStorage.setItem(TOLD, "yes"));
    this.keysLeft = TOLD_FOR;
    this.draw();
    return true;
  }

  draw() {
    this.line.hidden = !this.keysLeft;
    emit(this.root, "pd-appearance");
    this.drawTime();
  }

  /** Write how much time drafts have saved in this week, once it is worth a word. */
  drawTime() {
    const { minutes, costs } = this.pace;
    const whole = Math.round(Math.abs(minutes));
    const lost = minutes < 0;
    this.time.hidden = Math.abs(minutes) < LEAST || this.pace.isIncognito();
    if (this.time.hidden) return;
    const [text, button] = this.time.children;
    text.textContent = `about ${whole} min ${lost ? "lost" : "saved"} this week (estimated)`;
    /** @type {HTMLElement} */ (button).hidden = !lost || this.when === "demand";
    this.time.title =
      `Characters taken × ${costs.key_ms} ms a key − ${costs.take_ms} ms for each draft taken − ` +
      `${costs.look_ms} ms for each new row. My writing shows your numbers.`;
  }
}
