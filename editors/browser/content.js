// @ts-check
/**
 * Drafts in the text fields of a page: notices what is typed, asks the worker for drafts, shows them, and inserts the one
 * that the user takes.
 *
 * A page must not read a draft that the user does not know of. So drafts continue what the user typed, and are taken
 * while the user can read them (`View.readable`) by events that no script made. A page's script can write into the field,
 * also by `execCommand`, whose input event looks as if the user had typed: what keys do is known from `beforeinput`, which
 * a script cannot cause, and compared with what then stands before the caret (`agrees`). After a change of the page's own
 * there are drafts again once the user has typed `TRUST` letters without another one.
 */

const PAUSE = 40; // ms after the last key, until the text is read
const WORD = /^\s*\S+/; // with the space before it
const TAKES = /^Digit([1-9])$/;
const TRUST = 2; // letters

class Drafting {
  constructor() {
    this.on = false;
    /** @type {Field | null} */
    this.field = null;
    /** @type {string[]} */
    this.drafts = [];
    this.before = ""; // the text before the caret that the drafts continue
    this.within = false; // text follows in the caret's line
    this.listed = false;
    this.typed = false; // something was typed since the text was read
    /** What stands before the caret if nothing but the user's keys changed it; null: unknown. @type {string | null} */
    this.expected = "";
    this.loose = false; // a key has deleted, or begun a line, which editors do in ways of their own
    this.moved = true; // the caret may be at another place than where the text was read last
    this.foreign = false; // the page has changed the text
    this.letters = 0; // typed since then
    /** The whole texts of fields as they were read last. @type {WeakMap<Field, string>} */
    this.known = new WeakMap();
    this.composing = false;
    this.composed = ""; // by an input method, up to now
    this.dismissed = false; // until something is typed
    this.number = 0; // of the latest request
    this.timer = 0;
    this.view = new View((index) => this.take(this.drafts[index]));
  }

  listen() {
    const all = { capture: true };
    const passive = { capture: true, passive: true };
    addEventListener("keydown", (event) => this.key(event), all);
    addEventListener("beforeinput", (event) => event.isTrusted && this.write(event), passive);
    addEventListener("input", () => this.changed(), passive);
    addEventListener("compositionstart", (event) => event.isTrusted && this.compose(true), passive);
    addEventListener("compositionend", () => this.compose(false), passive); // Chromium does not call it trusted
    addEventListener("pointerup", () => this.move(), passive);
    addEventListener("focusin", () => this.move(), passive);
    addEventListener("focusout", () => this.forget(), passive);
    addEventListener("scroll", () => this.redraw(), passive);
    addEventListener("resize", () => this.redraw(), passive);
  }

  /** @param {boolean} on */
  switch(on) {
    this.on = on;
    if (!on) this.forget();
  }

  forget() {
    clearTimeout(this.timer);
    this.field = null;
    this.typed = this.loose = false;
    this.before = this.expected = "";
    this.clear();
  }

  clear() {
    this.number += 1; // a response that is on its way is not shown
    this.drafts = [];
    this.listed = false;
    this.view.hide();
  }

  redraw() {
    if (this.field && this.drafts.length) this.view.show(this.field, this.drafts, this.listed, this.within);
  }

  /** @param {boolean} begun */
  compose(begun) {
    if (!this.on || begun === this.composing) return;
    this.composing = begun;
    if (begun) this.clear();
    else this.expect(this.composed);
    this.composed = "";
  }

  /** Before the user's key, or what is pasted, changes the text. @param {InputEvent} event */
  write({ inputType, data, dataTransfer, isComposing }) {
    if (!this.on) return;
    if (this.composing || isComposing) {
      this.composed = data ?? "";
      return;
    }
    if (this.moved) this.look();
    if (inputType.startsWith("delete")) this.loose = true;
    const line = inputType === "insertParagraph" || inputType === "insertLineBreak";
    this.expect(line ? "\n" : data ?? dataTransfer?.getData("text/plain").replace(/\r\n?/g, "\n") ?? "");
  }

  /** The user typed this. @param {string} text */
  expect(text) {
    if (this.expected !== null) this.expected += plain(text);
    this.typed = true;
    this.letters += text.length;
    this.changed();
  }

  move() {
    this.moved = true;
    this.changed();
  }

  /** Read the text before the caret, which may have moved, at once: the user is about to change it. */
  look() {
    const field = fieldOf(focused());
    const around = field && textAround(field);
    this.moved = false;
    this.expected = around?.before ?? null;
    if (!field || around?.before === this.before) return;
    this.clear();
    this.meet(field);
  }

  /** Whether nothing but the user's keys has led to this text. @param {string} before the caret */
  agrees(before) {
    if (this.expected === null) return false;
    if (this.expected.endsWith(before)) return true; // of a long text, the end is read
    return this.loose && (this.expected.startsWith(before) || `${this.expected}\n`.endsWith(before));
  }

  /** Note whether the page has changed a field's text since it was read last. @param {Field} field */
  meet(field) {
    const text = wholeText(field);
    if (text !== (this.known.get(field) ?? text)) this.distrust(0);
    this.known.set(field, text);
  }

  /** The page has changed the text. @param {number} letters that the user may have typed since */
  distrust(letters) {
    this.foreign = true;
    this.letters = letters;
  }

  /** The text may have changed, or the caret moved: it is read soon, not while the key is handled. */
  changed() {
    if (!this.on || this.composing) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.read(), PAUSE);
  }

  read() {
    const field = fieldOf(focused());
    const around = field && textAround(field);
    if (!field || !around) return this.forget();
    const typed = this.typed && this.agrees(around.before);
    if (this.typed) this.known.set(field, wholeText(field));
    else this.meet(field);
    if (this.typed && !typed) this.distrust(1); // the letter just typed
    this.typed = this.moved = this.loose = false;
    this.expected = around.before;
    const moved = field !== this.field || around.before !== this.before;
    this.field = field;
    if (!moved) return;
    const more = around.before.startsWith(this.before) ? around.before.slice(this.before.length) : null;
    this.before = around.before;
    this.within = /^[^\n]*\S/.test(around.after);
    if (this.letters >= TRUST) this.foreign = false;
    if (!typed || this.foreign) return this.clear(); // only the caret moved, or the page wrote this
    this.dismissed = false;
    const left = more === null ? [] : this.drafts.filter((text) => text.length > more.length && text.startsWith(more));
    if (more !== null && left.length) {
      this.drafts = left.map((text) => text.slice(more.length));
      return this.redraw();
    }
    this.clear();
    if (/\S/.test(around.before)) this.ask(around, true);
  }

  /** @param {Around} around @param {boolean} unasked whether the drafts appear by themselves */
  async ask(around, unasked) {
    const number = (this.number += 1);
    /** @type {{texts: string[]}} */
    const { texts } = await chrome.runtime.sendMessage({ kind: "drafts", ...around, unasked });
    if (number !== this.number || this.dismissed || !this.field || this.composing) return;
    // What was typed since is not read yet; drafts that begin with it stay.
    const now = textAround(this.field);
    if (!now?.before.startsWith(around.before) || !this.agrees(now.before)) return;
    const more = now.before.slice(around.before.length);
    const left = texts.filter((text) => text.length > more.length && text.startsWith(more));
    if (!left.length) return; // what was typed since will be read, and ask again
    this.before = now.before;
    const { field } = this;
    this.drafts = [...new Set(left.map((text) => fitting(field, text.slice(more.length))).filter(Boolean))];
    this.redraw();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.on || !event.isTrusted) return;
    if (event.isComposing || event.keyCode === 229) return; // the keys of an input method
    if (this.command(event)) {
      event.preventDefault();
      event.stopImmediatePropagation();
    } else if (!["Shift", "Control", "Alt", "Meta"].includes(event.key)) {
      const command = event.ctrlKey || event.metaKey;
      if (command || event.key.length > 1) this.moved = true;
      else if (this.moved) this.look(); // before the page hears of the key
      if (!command && ["Backspace", "Delete", "Enter"].includes(event.key)) this.loose = this.typed = true;
      this.changed();
    }
  }

  /** Does what a key is for; returns whether it is one of ours. @param {KeyboardEvent} event */
  command(event) {
    const { key, code, altKey: alt, ctrlKey: ctrl, metaKey: meta, shiftKey: shift } = event;
    if (meta || shift) return false;
    if (alt && !ctrl && key === "ArrowDown") return this.openList();
    if (!this.field || !this.drafts.length || this.stale()) return false;
    const digit = alt && !ctrl && TAKES.exec(code);
    if (digit && digit[1] !== "1" && !this.listed) return this.openList(); // what is not shown is not taken
    if (digit) return this.take(this.drafts[Number(digit[1]) - 1]);
    if (ctrl && !alt && key === "ArrowRight") return this.take(WORD.exec(this.drafts[0])?.[0]);
    if (alt || ctrl) return false;
    if (key === "Escape") return this.dismiss();
    if (this.listed && (key === "ArrowDown" || key === "ArrowUp")) {
      this.view.move(key === "ArrowDown" ? 1 : -1);
      return true;
    }
    if (this.listed && key === "Enter") return this.take(this.drafts[this.view.chosen]);
    if (key !== "Tab" || hasOwnList(this.field)) return false;
    return this.take(this.drafts[this.listed ? this.view.chosen : 0]);
  }

  /** Whether the text has changed since the drafts were shown: they are not those for this place. */
  stale() {
    const now = this.field && this.field === fieldOf(focused()) ? textAround(this.field) : null;
    return now?.before !== this.before;
  }

  openList() {
    const field = fieldOf(focused());
    const around = field && textAround(field);
    if (!around) return false;
    this.listed = true;
    this.dismissed = false;
    if (this.drafts.length && !this.stale()) this.redraw();
    else if (/\S/.test(around.before)) {
      this.field = field;
      this.before = this.expected = around.before;
      this.within = /^[^\n]*\S/.test(around.after);
      this.ask(around, false);
    }
    return true;
  }

  dismiss() {
    if (this.listed) {
      this.listed = false;
      this.redraw();
    } else {
      this.clear();
      this.dismissed = true;
    }
    return true;
  }

  /**
   * Inserts a draft, or a part of one; returns whether there is one that the user can read.
   * @param {string | undefined} text
   */
  take(text) {
    if (!text || !this.field || !this.view.readable()) return false;
    const rest = this.drafts.filter((draft) => draft.length > text.length && draft.startsWith(text));
    this.listed = false;
    this.view.hide(); // it also ends a step of the field's undo
    insert(text);
    const now = textAround(this.field);
    this.expected = this.before + text;
    this.known.set(this.field, wholeText(this.field));
    if (rest.length && now?.before === this.before + text) {
      this.before = now.before; // at once, for the next key
      this.drafts = rest.map((draft) => draft.slice(text.length));
      this.redraw();
      this.view.since = 0; // the rest was read with what was taken
    } else {
      this.drafts = [];
      this.typed = true;
      this.changed();
    }
    return true;
  }
}

const drafting = new Drafting();

chrome.runtime.onMessage.addListener((message) => {
  if (message.kind === "switched") drafting.switch(message.on);
});

chrome.runtime.sendMessage({ kind: "hello" }).then(({ on }) => {
  drafting.listen();
  drafting.switch(on);
});
