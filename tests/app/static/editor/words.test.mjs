/** Which words Alt+↑ replaces. In the cases | is the caret, [ and ] are the ends of the selection; the words are marked so, too. */

import assert from "node:assert/strict";
import test from "node:test";

import { wordsAt } from "../../../../app/static/editor/words.js";

const NONE = "Put the caret on a word, or select up to eight words.";

/** What is meant in a text with marks. */
function meant(marked) {
  const text = marked.replace(/[[\]|]/g, "");
  const start = marked.search(/[[|]/);
  const end = marked.includes("]") ? marked.indexOf("]") - 1 : start;
  const found = wordsAt(text, start, end);
  return "problem" in found ? found.problem : `${text.slice(0, found.start)}[${text.slice(found.start, found.end)}]${text.slice(found.end)}`;
}

test("the word at the caret, whether that is in it, before it or after it", () => {
  for (const caret of ["A |quick fox", "A qu|ick fox", "A quick| fox"]) assert.equal(meant(caret), "A [quick] fox");
  assert.equal(meant("I don’|t know."), "I [don’t] know.");
  assert.equal(meant("a well|-known tale"), "a [well]-known tale");
  assert.equal(meant("The end|."), "The [end].");
  assert.equal(meant("我|喜欢你"), "我[喜欢]你");
});

test("a selection is made whole words, without the marks around them", () => {
  assert.equal(meant("She w[as very hap]py."), "She [was very happy].");
  assert.equal(meant("She said[, “well”, ]then"), "She said, “[well]”, then");
  assert.equal(meant("[one two three four five six seven eight]"), "[one two three four five six seven eight]");
});

test("where nothing can be replaced, a sentence says why", () => {
  for (const place of ["|", "one  |  two", "one[, ]two", "— | —"]) assert.equal(meant(place), NONE);
  assert.match(meant("[one two three four five six seven eight nine]"), /^More than eight words/);
  assert.match(meant("one [two\nthree] four"), /line end/);
  assert.match(meant(`[${"word ".repeat(100_000)}]`), /^More than eight words/);
});
