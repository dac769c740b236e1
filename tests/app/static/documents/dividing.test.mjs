/** A text that is divided into parts. */

import assert from "node:assert/strict";
import test from "node:test";

import { cut, divided } from "../../../../app/static/documents/dividing.js";
import { MOST_EDITED, newDocument } from "../../../../app/static/documents/document.js";
import { dice } from "../random.mjs";

const below = dice(7);
const WORDS = ["a", "word", "naïve", "👩‍👩‍👧", "😀", "東京に行きました。", "mot", "é"];

/** Words with one of these strings between each two. */
function text(length, ...between) {
  let made = "";
  while (made.length < length) made += WORDS[below(WORDS.length)] + between[below(between.length)];
  return made;
}

test("parts joined are the text, can be edited, and end after whole paragraphs, lines or words", () => {
  for (const [whole, end] of [
    [("The keeper read it twice. ".repeat(9) + "\n\n").repeat(3000), "\n\n"],
    [text(900_000, " ", " ", " ", "\n"), "\n"],
    [text(900_000, " "), " "],
    [text(900_000, ""), ""],
    ["x".repeat(800_000), ""],
    ["😀".repeat(400_000) + "x" + "😀".repeat(300_000), ""],
    ["\n".repeat(700_000), "\n\n"],
  ]) {
    const parts = cut(whole);
    assert.ok(parts.join("") === whole);
    assert.ok(parts.slice(0, -1).every((part) => part.endsWith(end)));
    for (const part of parts) {
      assert.ok(part && part.length < MOST_EDITED && part.isWellFormed());
      assert.ok(!/^\p{M}|^\u200d/u.test(part), "no part begins inside a character");
    }
  }
});

test("each part has its private text, the background and the stores, and a title with a number", () => {
  const whole = "x".repeat(700_000);
  const privateRanges = [[200_000, 300_000], [699_995, 700_000]];
  const parts = divided(newDocument({ title: "Novel", text: whole, privateRanges, stores: ["law.ngram"], background: "A storm." }));
  assert.deepEqual(parts.map(({ title }) => title), ["Novel (1)", "Novel (2)", "Novel (3)"]);
  assert.ok(parts.every(({ stores, background }) => stores[0] === "law.ngram" && background === "A storm."));
  const starts = parts.map((_, n) => parts.slice(0, n).reduce((sum, part) => sum + part.text.length, 0));
  const secret = parts.flatMap((part, n) => part.privateRanges.map(([from, to]) => [from + starts[n], to + starts[n]]));
  assert.deepEqual(secret, [[200_000, starts[1]], [starts[1], 300_000], [699_995, 700_000]]);
});
