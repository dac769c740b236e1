/**
 * What a key inserts, without a page: rows, what was seen of them, and taking, while drafts arrive, grow, end elsewhere
 * and disappear at chosen times of a clock. test_taking_page.py presses keys of the whole page at such times.
 */

import assert from "node:assert/strict";
import test, { mock } from "node:test";

import { dice } from "../random.mjs";

const READ = 200;
globalThis.matchMedia = () => ({ matches: false }); // no touch screen
const { firstWord, upToWord } = await import("../../../../app/static/editor/drafting.js");
const { Rows } = await import("../../../../app/static/editor/rows.js");
const { Taking } = await import("../../../../app/static/editor/taking.js");
const { DraftsView } = await import("../../../../app/static/editor/drafts_view.js");

/** A text field and what stands around its caret, as a person sees it. */
class Page {
  constructor(decides) {
    this.clock = 10_000;
    this.decides = decides;
    this.textarea = {
      value: "", selectionStart: 0, selectionEnd: 0, scrollTop: 0, clientHeight: 500,
      setSelectionRange(start, end) { Object.assign(this, { selectionStart: start, selectionEnd: end }); },
    };
    this.pressed = null;
    this.composing = false;
    this.rows = new Rows();
    this.shown = { ghost: "", rows: [] };
    const ghost = {
      room: 0, bottom: () => 0,
      show: (text) => { this.shown.ghost = text; },
      hide: () => { this.shown.ghost = ""; },
    };
    const list = {
      draw: (rows) => {
        this.shown.rows = rows.map(({ live, rest }) => (live ? rest : ""));
      },
      show() {},
    };
    const layout = { textFollows: false, float: () => 0, followText() {} };
    this.view = new DraftsView(this, this.rows, { ghost, list, layout }, () => false, () => {});
    const parts = { field: this, view: this.view, revisiting: { here: () => false, taken() {} }, pace: { taken() {} } };
    this.taking = new Taking(new EventTarget(), parts, () => {});
  }

  get text() { return this.textarea.value; }
  get caret() { return this.textarea.selectionStart; }
  get head() { return this.text; }

  keyDown(pressed) { this.pressed = pressed; }

  /** The text is another one. */
  put(text) {
    Object.assign(this.textarea, { value: text, selectionStart: text.length, selectionEnd: text.length });
    this.rows.resize(3);
    this.rows.follow(text);
    if (this.decides) this.rows.dropFreed();
    this.draw();
  }

  insert(text) { this.put(this.text + text); }

  draw() { this.view.draw({ decides: this.decides, since: this.clock }); }

  sight() { return { at: this.clock, text: this.text, ...structuredClone(this.shown) }; }
}

const WORDS = ["to", "the", "house", "and", "a", "hill", "market", "up", "by", "road", "river", "with", "home"];

/** A server whose drafts change at every step of an answer. */
class Server {
  constructor(page, below) {
    this.page = page;
    this.below = below;
    this.anchor = null;
    this.texts = [null, null, null];
  }

  pick(list) { return list[this.below(list.length)]; }
  chance(share) { return this.below(1000) < 1000 * share; }
  piece() { return ` ${this.pick(WORDS)}`.slice(0, this.chance(0.2) ? 3 : 99); } // sometimes the beginning of a word
  phrase() { return Array.from({ length: 1 + this.below(3) }, () => this.piece()).join(""); }

  change(text) {
    if (text === null) return this.chance(0.7) ? this.phrase() : null;
    const way = this.below(100);
    if (way < 45) return text + this.piece();
    if (way < 55) return text.slice(0, 1 + this.below(text.length)); // an end that moves backwards
    if (way < 70) return text.slice(0, this.below(text.length)) + this.phrase(); // another end
    if (way < 80) return this.phrase();
    return way < 85 ? null : text;
  }

  /** The next step of the answer; if there is none, or a key came after it, of another one. */
  arrive() {
    const { page } = this;
    const late = page.decides && this.anchor !== null && page.text.startsWith(this.anchor);
    if (this.anchor !== page.text && !(late && this.chance(0.5))) {
      this.anchor = page.text;
      this.texts = [null, null, null];
      if (!page.decides) for (const { id, text } of page.rows.kept()) this.texts[id] = text;
    }
    this.texts = this.texts.map((text) => this.change(text));
    const drafts = this.texts.flatMap((text, id) => (text ? [{ id, text, probability: this.below(1000) / 1000, whole: 0.1, finished: false }] : []));
    const done = this.chance(0.25);
    if (page.decides) {
      const paying = drafts.filter(() => this.chance(0.7));
      page.rows.decide(this.anchor, page.text, paying.map((draft, n) => (
        { ...draft, text: draft.text.slice(0, 1 + this.below(draft.text.length)), best: n === 0 })));
    } else {
      page.rows.receive(this.anchor, page.text, { drafts, settled: this.chance(0.8), shortens: false });
      if (done) page.rows.prefer(drafts.length ? this.pick(drafts).id : null);
    }
    if (done || page.decides) this.anchor = null;
    page.draw();
  }
}

/** Whether a visible row ends earlier than it did, in a text that was only continued. */
const shorter = (earlier, later) => later.text.startsWith(earlier.text) && later.rows.some((text, i) => {
  const [old, whole] = [earlier.rows[i] && earlier.text + earlier.rows[i], later.text + text];
  return text && old && old !== whole && old.startsWith(whole);
});

for (const decides of [false, true]) {
  test(`of 2000 takings none inserts another text than stood there 200 ms before, and no end moves back: ${decides ? "rows that save time" : "all rows"}`, () => {
    const page = new Page(decides);
    mock.method(performance, "now", () => page.clock);
    const below = dice(7);
    const server = new Server(page, below);
    const counts = { inserted: 0, refused: 0 };
    for (let n = 0; n < 2000; n++) {
      page.clock += 100;
      page.put(`${n} she went`);
      const seen = [page.sight()];
      for (let step = 3 + below(9); step > 0; step--) {
        page.clock += 5 + below(190);
        const visible = page.shown.ghost || server.pick(page.shown.rows) || "";
        if (server.chance(0.75)) server.arrive();
        else if (server.chance(0.15)) page.put(page.text.slice(0, -1));
        else page.insert(server.chance(0.8) && visible ? visible[0] : server.pick(["x", " ", ","]));
        seen.push(page.sight());
        assert.ok(!shorter(seen.at(-2), seen.at(-1)), JSON.stringify(seen.slice(-2)));
      }
      page.clock += below(server.chance(0.5) ? 60 : 600);
      const pressed = page.clock - below(40); // the page may be late
      const now = page.sight();
      const then = seen.findLast(({ at }) => at <= pressed - READ) ?? { text: "", ghost: "", rows: [] };
      const [how, row] = [server.pick(["best", "word of best", "row", "word of row", "click"]), below(3)];
      // The best draft is what was grey then, or else is now. A row that is alone is the grey text, without a list.
      const places = how.endsWith("best") ? [then.ghost, then.rows[page.view.active]] : [then.rows[row] ?? then.ghost];
      const stood = places.filter(Boolean).map((text) => then.text + text)
        .filter((text) => text.startsWith(now.text) && text !== now.text).map((text) => text.slice(now.text.length));

      const offset = server.chance(0.7) ? below(12) : null; // of a click; null: beside the text
      const taken = stood.map((text) => {
        if (how.startsWith("word")) return firstWord(text);
        return how === "click" && offset !== null ? text.slice(0, upToWord(text, Math.min(offset, text.length - 1))) : text;
      });
      page.keyDown(pressed);
      if (how === "best") page.taking.takeBest();
      else if (how === "word of best") page.taking.takeWordOfBest();
      else if (how === "row") page.taking.takeRow(row);
      else if (how === "word of row") page.taking.takeWordOfRow(row);
      else page.taking.click(row, offset, pressed);

      const inserted = page.text.slice(now.text.length);
      const right = page.text.startsWith(now.text) && (!inserted || taken.includes(inserted));
      // Deleted letters were no draft, and the grey text alone may be that of another row.
      const must = stood.length && now.text.length >= then.text.length && (then.rows.length || how.endsWith("best"));
      assert.ok(right && !(must && !inserted), JSON.stringify({ n, how, row, pressed, inserted, stood, now, seen }));
      counts[inserted ? "inserted" : "refused"]++;
    }
    mock.restoreAll();
    assert.ok(counts.inserted > 600 && counts.refused > 300, JSON.stringify(counts));
  });
}
