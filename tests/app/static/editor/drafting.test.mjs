/** The pure functions on drafts and text. */

import assert from "node:assert/strict";
import test from "node:test";

import {
  branches, cropped, firstWord, fitted, following, inkOf, isNew, sharedBeginning, upToWord, wellFormed,
} from "../../../../app/static/editor/drafting.js";
import { cases } from "../cases.mjs";

const STRIDE = 4096;
const letters = Array.from({ length: 10 * STRIDE }, (_, i) => String.fromCharCode(97 + ((i * 7) % 26))).join("");

test("a draft repeats nothing of what follows and does not join the next word", () => {
  for (const { draft, after, inserted } of cases("spacing")) assert.equal(fitted(draft, after), inserted, `${draft}|${after}`);
});

test("the ink of a row is that of its chance", () => {
  for (const { chance, ink } of cases("inks")) assert.equal(inkOf(chance), ink, `${chance}`);
});

test("a row costs a look unless its words are on the screen", () => {
  for (const { text, shown, new: costs } of cases("looks")) assert.equal(isNew(text, shown), costs, `${text} beside ${shown}`);
});

test("the window sent has a stable start", () => {
  for (const { strides, more, start } of cases("windows")) {
    const text = letters.slice(0, strides * STRIDE + more);
    assert.ok(cropped(text) === text.slice(start * STRIDE), `${strides} strides and ${more}`);
  }
});

test("requests contain as much of a long text as the server accepts", () => {
  const part = { before: cropped, after: following };
  for (const { field, written, sent } of cases("lengths")) {
    assert.equal(part[field]("x".repeat(written)).length, sent, `${field}: ${written}`);
  }
});

test("a part of a text begins and ends with whole characters", () => {
  const window = cropped("x" + "😀".repeat(5000));
  assert.ok(window.startsWith("😀") && window.endsWith("😀"));
  const after = following("x" + "😀".repeat(500));
  assert.equal(after, "x" + "😀".repeat(127));
  assert.equal(wellFormed("half \ud83d and \ude00 went"), "half \ufffd and \ufffd went");
});

test("white space after the caret is not sent", () => {
  assert.equal(following(" \n\t "), "");
  assert.equal(following(". \n"), ". \n");
});

test("one word is taken with the space before it, without the punctuation after it", () => {
  for (const [rest, word] of [
    [" to the market", " to"], ["ting a letter", "ting"], [", and so", ","], [' "Hello," she', ' "Hello'],
    ['," she', ',"'], ["end", "end"], [" ", " "], ["我们去市场。然后", "我们"],
  ]) assert.equal(firstWord(rest), word, rest);
});

test("a click takes the text up to the end of a word", () => {
  for (const [offset, length] of [[0, 3], [1, 3], [3, 7], [4, 7], [5, 7], [9, 14], [14, 15], [18, 19]]) {
    assert.equal(upToWord(" to the market, now", offset), length, `${offset}`);
  }
});

test("branches part at whole words", () => {
  const whole = { shared: 0, parent: -1 };
  assert.equal(sharedBeginning(" the market", " then"), 0);
  assert.equal(sharedBeginning(" to the market", " to the river"), " to the".length);
  assert.deepEqual(branches([" to the market", " to the river", " to the"]), [whole, { shared: " to the".length, parent: 0 }, whole]);
  assert.deepEqual(branches([" a b c", " a b d", " a e", " f"]), [whole, { shared: 4, parent: 0 }, { shared: 2, parent: 0 }, whole]);
});
