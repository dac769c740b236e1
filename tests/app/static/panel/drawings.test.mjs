/** What the panel's drawings say, and where two drafts begin to differ. */

import assert from "node:assert/strict";
import test from "node:test";

import { marks, tokens } from "../../../../app/static/editor/marks.js";
import { sharedWords } from "../../../../app/static/panel/compare.js";
import { cost, saying } from "../../../../app/static/panel/made.js";

const PLAIN = { from: 0, to: 3, by: "own", gamma: null, ln_model: -0.5, ln_stores: null, ln_mixture: -0.5, kept: null };

test("two drafts differ from the first word on that is not the same", () => {
  for (const [text, other, shared] of [
    [" the old man", " the old men", " the old "], [" the old", " the older", " the "], [" a b", " a b", " a b"],
    [" a", " a b", " a"], [" x", " y", " "], ["", " y", ""], [" the", "", ""],
  ]) {
    assert.equal(text.slice(0, sharedWords(text, other)), shared, text);
  }
});

test("the cost of drafts is a sentence, also where rows are not timed", () => {
  const explained = { passes: 9, rows: 20, ms: 31.4, apart_ms: 74.2 };
  assert.equal(cost(3, 8, explained), "3 drafts of 8 tokens in 9 passes, 31 ms; apart they would take 74 ms here.");
  assert.equal(cost(1, 2, { ...explained, passes: 1, apart_ms: null }), "1 draft of 2 tokens in 1 pass, 31 ms.");
});

test("a token says where it came from and only what is known of it", () => {
  assert.equal(saying(" the", PLAIN), "“the” from a row of its own · ln p -0.50 by the model · -0.50 mixed");
  const mine = { ...PLAIN, by: "store", store: "personal", gamma: 0.25, ln_stores: -1, kept: 1200 };
  assert.equal(saying("x", mine).split(" · ").length, 6);
  assert.match(saying("x", mine), /your own writing · γ 0\.25 .*the rule kept 1,200/);
});

test("tokens are coloured by how likely they were or by how they were made, in the part that is left", () => {
  const made = [PLAIN, { ...PLAIN, from: 3, to: 7, by: "superposed", ln_mixture: -4 }];
  const draft = { id: 0, text: "ab cdef", probability: 1, whole: 1, finished: true, made };
  assert.deepEqual(tokens(draft, "ab cdef", "made").map(({ name }) => name), ["pd-by-own", "pd-by-superposed"]);
  assert.deepEqual(tokens(draft, " cdef", "chance").map(({ from, name }) => [from, name]), [[0, "pd-likely-4"], [1, "pd-likely-0"]]);
});

test("of a draft whole words are marked that a store chose, in the part that is left", () => {
  const marked = (text, personal, rest = text) => marks({ text, personal }, rest).map(({ from, to }) => rest.slice(from, to));
  assert.deepEqual(marked(" 😀 to the market", [[5, 9]]), [" the"]);
  assert.deepEqual(marked(" 😀 to the market", [[5, 9]], "he market"), ["he"]);
  assert.deepEqual(marked(" your letter's end, Wilhelmina", [[8, 10]]), ["letter's"]); // "et" of it
  assert.deepEqual(marked(" home before", [[0, 3], [3, 5]]), [" home"]);
});
