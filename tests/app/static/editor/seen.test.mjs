/** What was seen, and since when. */

import assert from "node:assert/strict";
import test from "node:test";

import { Seen, TAB } from "../../../../app/static/editor/seen.js";

/** What Tab takes after an "n" was typed, if these texts stood at its place and in rows, each from a moment on. */
function readAfter(...shown) {
  const seen = new Seen();
  const drafted = (text) => text && { text, anchor: "I am", origin: 4, lineage: 1 };
  for (const [at, ...places] of shown) seen.show(places.map(drafted), "I am", at);
  seen.show(shown.at(-1).slice(1).map((text) => drafted(text && " not sure yet")), "I am n", 1000);
  const { text, since } = seen.read(TAB, "I am n", 1500);
  return { text, first: since(2), all: since(text.length) };
}

test("a time is counted from the first sight of the text that is taken", () => {
  assert.deepEqual(readAfter([100, " not"], [700, " not sure"]), { text: "ot sure yet", first: 100, all: 1000 });
  assert.deepEqual(readAfter([100, " never"], [700, " not sure"]), { text: "ot sure yet", first: 700, all: 1000 });
  const alsoInARow = readAfter([100, " never", null, " not"], [700, " not sure", null, " not sure"]);
  assert.equal(alsoInARow.first, 100);
});
