// @ts-check
/**
 * Drafts in the text fields of a page: notices what is typed, asks the worker for drafts, shows them, and inserts the one
 * that the user takes. Events that the page's scripts made are ignored, so that a page cannot take a draft and read it.
 */

const PAUSE = 40; // ms after the last key, until the text is read
const WORD = /^\s*\S+/; // with the space before it
const TAKES = /^Digit([1-9])$/;

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
    this.composing = false;
    this.dismissed = false; // until something is typed
    this.number = 0; // of the latest request
    this.timer = 0;
    this.view = new View((index) => this.take(this.drafts[index]));
  }

  listen() {
    const all = { capture: true };
    const passive = { capture: true, passive: true };
    addEventListener("keydown", (event) => this.key(event), all);
    addEventListener("input", (event) => event.isTrusted && this.changed(true), passive);
    addEventListener("compositionstart", () => this.compose(true), passive);
    addEventListener("compositionend", () => this.compose(false), passive);
    addEventListener("pointerup", () => this.changed(false), passive);
    addEventListener("focusin", () => this.changed(false), passive);
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
    if (!this.on) return;
    this.composing = begun;
    if (begun) this.clear();
    else this.changed(false); // what was composed came with an input event
  }

  /**
   * Something was typed, or the caret may have moved: the text is read soon, not while the key is handled.
   * @param {boolean} typed
   */
  changed(typed) {
    if (!this.on) return;
    this.typed ||= typed;
    if (this.composing) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.read(), PAUSE);
  }

  read() {
    const field = fieldOf(focused());
    const around = field && textAround(field);
    const typed = this.typed;
    this.typed = false;
    if (!field || !around) return this.forget();
    const moved = field !== this.field || around.before !== this.before;
    this.field = field;
    if (!moved) return;
    const more = around.before.startsWith(this.before) ? around.before.slice(this.before.length) : null;
    this.before = around.before;
    this.within = /^[^\n]*\S/.test(around.after);
    if (!typed) return this.clear(); // only the caret moved
    this.dismissed = false;
    const left = more === null ? [] : this.drafts.filter((text) => text.length > more.length && text.startsWith(more));
    if (more !== null && left.length) {
      this.drafts = left.map((text) => text.slice(more.length));
      return this.redraw();
    }
    this.clear();
    if (/\S/.test(around.before)) this.ask(around);
  }

  /** @param {Around} around */
  async ask(around) {
    const number = (this.number += 1);
    /** @type {{texts: string[]}} */
    const { texts } = await chrome.runtime.sendMessage({ kind: "drafts", ...around });
    if (number !== this.number || this.dismissed || !this.field || this.composing) return;
    // What was typed since is not read yet; drafts that begin with it stay.
    const now = textAround(this.field);
    if (!now?.before.startsWith(around.before)) return;
    const more = now.before.slice(around.before.length);
    const left = texts.filter((text) => text.length > more.length && text.startsWith(more));
    if (!left.length) return; // what was typed since will be read, and ask again
    this.before = now.before;
    this.drafts = left.map((text) => text.slice(more.length));
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
      const writes = event.key.length === 1 || ["Backspace", "Delete", "Enter"].includes(event.key);
      this.changed(writes && !event.ctrlKey && !event.metaKey);
    }
  }

  /**
   * Does what a key is for; returns whether it is one of ours.
   * @param {KeyboardEvent} event
   */
  command(event) {
    const { key, code, altKey: alt, ctrlKey: ctrl, metaKey: meta, shiftKey: shift } = event;
    if (meta || shift) return false;
    if (alt && !ctrl && key === "ArrowDown") return this.openList();
    if (!this.field || !this.drafts.length || this.stale()) return false;
    const digit = alt && !ctrl && TAKES.exec(code);
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
      this.before = around.before;
      this.within = /^[^\n]*\S/.test(around.after);
      this.ask(around);
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
   * Inserts a draft, or a part of one; returns whether there is one.
   * @param {string | undefined} text
   */
  take(text) {
    if (!text || !this.field) return false;
    const rest = this.drafts.filter((draft) => draft.length > text.length && draft.startsWith(text));
    this.listed = false;
    this.view.hide();
    insert(text);
    const now = textAround(this.field);
    if (rest.length && now?.before === this.before + text) {
      this.before = now.before; // at once, for the next key
      this.drafts = rest.map((draft) => draft.slice(text.length));
      this.redraw();
    } else {
      this.drafts = [];
      this.changed(true);
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
