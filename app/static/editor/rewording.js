// @ts-check
/**
 * What else could stand in place of the word at the caret, or of a few selected words: a box below them, in which a digit
 * chooses. While it is open, these words are selected; another key closes it and does what it does anyway.
 */

import { comboOf, matches } from "./combos.js";
import { cropped, following, percent } from "./drafting.js";
import { READABLE_AFTER } from "./seen.js";
import { wordsAt } from "./words.js";
import { dialogIsOpen, newElement, part, setText } from "../shared/dom.js";
import { Timers } from "../shared/timers.js";
import { streamDrafts } from "../shared/transport.js";

const BUSY_AFTER = 2000; // ms without an answer
const MARGIN = 4; // px between the words and the box

/** @typedef {{id: number, text: string, probability: number}} Choice */

export class Rewording {
  /**
   * @param {HTMLElement} root
   * @param {{field: import("./text_field.js").TextField, drafts: import("./drafts_controller.js").DraftsController,
   *          notices: import("./notices.js").Notices}} parts
   */
  constructor(root, { field, drafts, notices }) {
    this.field = field;
    this.drafts = drafts;
    this.notices = notices;
    this.timers = new Timers();
    this.desk = part(root, ".pd-desk");
    this.box = newElement("div", "pd-rewording", `<p role="status"></p><div role="listbox" aria-label="Other words"></div>`);
    this.box.hidden = true;
    this.said = /** @type {HTMLElement} */ (this.box.firstElementChild);
    this.list = /** @type {HTMLElement} */ (this.box.lastElementChild);
    this.desk.append(this.box);
    /** The words that are replaced, and the selection before they were selected. @type {{start: number, end: number, words: string, selected: [number, number]} | null} */
    this.place = null;
    /** @type {Choice[]} */
    this.choices = [];
    this.active = 0;
    /** When they appeared. */
    this.shownAt = 0;
    /** Whether an answer is awaited. */
    this.waits = false;
    this.controller = new AbortController();

    // The text keeps the focus, and a phone its keyboard.
    for (const event of ["pointerdown", "mousedown"]) this.box.addEventListener(event, (pressed) => pressed.preventDefault());
    this.box.addEventListener("click", ({ target }) => {
      const option = target instanceof Element ? target.closest("[role=option]") : null;
      if (option) this.take([...this.list.children].indexOf(option));
    });
    // In the capture phase, before the keys of the text and of drafts.
    addEventListener("keydown", (event) => this.pressed(event), true);
    document.addEventListener("pointerdown", ({ target }) => {
      if (this.place && !(target instanceof Node && this.box.contains(target))) this.close({ restore: false });
    });
    document.addEventListener("selectionchange", () => {
      const { selectionStart, selectionEnd } = field.textarea;
      if (this.place && (selectionStart !== this.place.start || selectionEnd !== this.place.end)) this.close({ restore: false });
    });
    root.addEventListener("pd-text", () => this.close({ restore: false }));
    for (const event of ["scroll", "blur"]) {
      field.textarea.addEventListener(event, () => (event === "blur" ? this.close({ restore: false }) : this.move()));
    }
    addEventListener("resize", () => this.move());
  }

  /** Look for other words, or say why that cannot be. @returns {boolean} whether the key is used */
  open() {
    const { field, notices, drafts } = this;
    const { textarea, text } = field;
    if (field.composing) return false;
    if (!field.hasRoomFor("")) return true; // the writer was told
    const found = wordsAt(text, textarea.selectionStart, textarea.selectionEnd);
    if ("problem" in found) {
      notices.toast(found.problem, { long: true });
      return true;
    }
    this.close();
    const { start, end } = found;
    drafts.clear();
    this.place = { start, end, words: text.slice(start, end), selected: [textarea.selectionStart, textarea.selectionEnd] };
    textarea.focus({ preventScroll: true });
    textarea.setSelectionRange(start, end);
    this.show([], "Looking for other words…");
    this.waits = true;
    this.timers.later("busy", BUSY_AFTER, () => this.say("The model is busy. Other words appear here as soon as it is free."));
    this.ask(this.place);
    return true;
  }

  /** @param {{start: number, end: number, words: string}} place */
  ask({ start, end, words }) {
    const { field: { text }, drafts } = this;
    this.controller = new AbortController();
    const { signal } = this.controller;
    const request = {
      n: drafts.number(), before: cropped(text.slice(0, start)), words, after: following(text.slice(end)),
      settings: { prose: drafts.setting.request().prose }, ...drafts.documentFields(),
    };
    streamDrafts(request, (line) => signal.aborted || this.receive(line), signal).then((failed) => failed && this.fail(failed));
  }

  /** @param {any} line of the answer */
  receive(line) {
    if (line.type === "error") this.fail(line);
    else if (line.type === "drafts" && line.done) {
      const [here] = line.drafts.filter((/** @type {Choice} */ { id }) => id === 0);
      const others = line.drafts.filter((/** @type {Choice} */ { id }) => id > 0);
      const { words } = /** @type {{words: string}} */ (this.place);
      const now = here ? `“${words}” · ${percent(here.probability)}` : `“${words}”`;
      this.show(others, others.length ? `In place of ${now}` : `Nothing else is likely in place of ${now}.`);
      if (others.length) this.notices.announce(`${others.length} other words. 1: ${others[0].text}. A digit takes one.`);
    }
  }

  /** @param {{message: string, fix?: string}} problem */
  fail({ message, fix = "" }) {
    this.show([], `${message} ${fix}`.trim());
  }

  /** @param {Choice[]} choices @param {string} said */
  show(choices, said) {
    this.choices = choices;
    this.waits = false;
    this.active = 0;
    this.timers.stop("busy");
    this.shownAt = performance.now();
    this.list.replaceChildren(...choices.map((choice) => newOption(choice)));
    this.box.hidden = false;
    this.say(said);
    this.mark();
  }

  /** @param {string} sentence */
  say(sentence) {
    setText(this.said, sentence);
    this.move();
  }

  /** Show which one Enter takes. */
  mark() {
    [...this.list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === this.active)));
    const { textarea } = this.field;
    if (this.choices.length) textarea.setAttribute("aria-activedescendant", `pd-word-${this.choices[this.active].id}`);
    else textarea.removeAttribute("aria-activedescendant");
  }

  /** Put the box below the words, or above them where there is more room. */
  move() {
    if (!this.place) return;
    const { box, desk, field: { map, text, textarea } } = this;
    const [from, to] = [map.locate(text, this.place.start), map.locate(text, this.place.end)];
    const { left, top, lineHeight } = map.column();
    const head = textarea.getBoundingClientRect().top - desk.getBoundingClientRect().top + top - textarea.scrollTop;
    const over = head + (from?.y ?? 0) - MARGIN;
    const under = head + (to?.y ?? 0) + lineHeight + MARGIN;
    const [above, below] = [over, desk.clientHeight - under];
    box.style.maxHeight = `${Math.max(above, below) - MARGIN}px`;
    const isBelow = box.offsetHeight <= below || below >= above;
    box.style.top = `${Math.round(isBelow ? under : over - box.offsetHeight)}px`;
    const x = left + (from && to && from.y === to.y ? Math.min(from.x, to.x) : 0);
    box.style.left = `${Math.round(Math.max(MARGIN, Math.min(x - 10, desk.clientWidth - box.offsetWidth - MARGIN)))}px`;
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    if (!this.place || event.isComposing || dialogIsOpen()) return;
    const combo = comboOf(event);
    if (!combo) return; // only Shift, Ctrl or Alt so far
    const n = matches(combo, "1…9", false) ?? matches(combo, "Alt+1…9", false);
    const by = { Up: -1, "Alt+Up": -1, Down: 1, "Alt+Down": 1 }[combo];
    const open = this.waits || this.choices.length > 0;
    const taken = n !== null ? n - 1 : combo === "Enter" || combo === "Tab" ? this.active : null;
    if (open && taken !== null) {
      if (event.timeStamp - this.shownAt >= READABLE_AFTER) this.take(taken); // earlier nobody can have read it
    } else if (open && by) this.choose(by);
    else {
      this.close();
      if (combo !== "Esc" && combo !== "Alt+Up") return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} by */
  choose(by) {
    const { length } = this.choices;
    if (!length) return;
    this.active = (this.active + by + length) % length;
    this.mark();
    this.list.children[this.active].scrollIntoView({ block: "nearest" });
  }

  /** Replace the words as one step of undo. @param {number} i */
  take(i) {
    const { place, field: { textarea } } = this;
    const choice = this.choices[i];
    if (!place || !choice) return;
    this.close({ restore: false });
    textarea.setSelectionRange(place.start, place.end);
    this.field.insert(choice.text);
    this.notices.announce(`${choice.text} in place of ${place.words}.`);
  }

  /** @param {{restore?: boolean}} how whether the selection shall be as before */
  close({ restore = true } = {}) {
    const { place, field: { textarea } } = this;
    if (!place) return;
    this.place = null;
    this.controller.abort();
    this.timers.stop("busy");
    this.box.hidden = true;
    this.choices = [];
    textarea.removeAttribute("aria-activedescendant");
    if (restore) textarea.setSelectionRange(...place.selected);
  }
}

/** @param {Choice} choice */
function newOption({ id, text, probability }) {
  const markup = `<span class="pd-number">${id}</span><span class="rw-text" dir="auto"></span><span class="rw-chance"></span>`;
  const option = newElement("div", "rw-choice", markup, { ".rw-text": text, ".rw-chance": percent(probability) });
  return Object.assign(option, { id: `pd-word-${id}`, role: "option" });
}
