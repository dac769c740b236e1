/** Private ranges, without a page. Greek is private. */

import assert from "node:assert/strict";
import test from "node:test";

import { matches, rangesAfter } from "../../../../app/static/editor/find.js";
import { difference, joined, moved } from "../../../../app/static/editor/privacy.js";
import { dice } from "../random.mjs";

test("ranges follow any edit", () => {
  for (let seed = 0; seed < 20; seed++) {
    const below = dice(seed);
    const pick = (list) => list[below(list.length)];
    let text = "";
    let ranges = [];
    for (let n = 0; n < 150; n++) {
      const at = below(text.length + 1);
      const inserted = pick(["", "abc", "αβγ", "a", "ω"]);
      const now = text.slice(0, at) + inserted + text.slice(at + pick([0, 0, 1, 5]));
      const edit = difference(text, now, at + inserted.length);
      ranges = moved(ranges, edit);
      if (/[α-ω]/.test(inserted)) ranges = joined([...ranges, [edit.at, edit.at + edit.inserted]]);
      text = now;
      const greek = [...text.matchAll(/[α-ω]+/g)].map(({ 0: letters, index }) => [index, index + letters.length]);
      assert.deepEqual(ranges, greek, text);
    }
  }
});

test("what replaces a match is private if a character of the match was", () => {
  const below = dice(3);
  const letters = (list, most) => Array.from({ length: 1 + below(most) }, () => list[below(list.length)]).join("");
  const within = (ranges, i) => ranges.some(([from, to]) => from <= i && i < to);
  for (let n = 0; n < 500; n++) {
    const text = letters("ab", 29);
    const what = letters("ab", 2);
    const other = ["", "x", "xyz"][below(3)];
    const ends = Array.from({ length: 4 }, () => below(text.length + 1)).sort((a, b) => a - b);
    const ranges = joined([ends.slice(0, 2), ends.slice(2)]);

    // A second, slow computation: character by character.
    const expected = [];
    for (let at = 0; at < text.length;) {
      const length = text.startsWith(what, at) ? what.length : 0;
      const hidden = Array.from({ length: length || 1 }, (_, i) => within(ranges, at + i)).some(Boolean);
      expected.push(...Array(length ? other.length : 1).fill(hidden));
      at += length || 1;
    }
    const lengths = { removed: what.length, inserted: other.length, all: text.length };
    const after = rangesAfter(ranges, matches(text, what, Infinity), lengths, false);
    assert.deepEqual(expected.map((_, i) => within(after, i)), expected, `${text}: ${what} by ${other}`);
  }
});
