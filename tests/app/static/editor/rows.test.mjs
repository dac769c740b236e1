/** The rows of the list: where answers put their drafts, and what a request says of those that stay. */

import assert from "node:assert/strict";
import test from "node:test";

import { Rows } from "../../../../app/static/editor/rows.js";

/** Rows that receive answers for the text "Once". */
function empty() {
  const rows = new Rows();
  rows.resize(2);
  const answer = (settled, ...texts) => {
    const drafts = texts.map((text, id) => ({ id, text, probability: 0.4, whole: 0.1, finished: false }));
    rows.receive("Once", "Once", { drafts, settled, shortens: false });
    return rows.all.map(({ draft }) => draft?.lineage);
  };
  return { rows, answer };
}

test("a row that the writer began says so in the next request, until a key", () => {
  const { rows, answer } = empty();
  answer(true, " upon a time");
  rows.begin("Once", " upstairs");
  assert.deepEqual(rows.kept(), [{ id: 0, text: " upon a time" }, { id: 1, text: " upstairs", chosen: true }]);
  rows.follow("Once ");
  assert.deepEqual(rows.kept(), [{ id: 0, text: "upon a time" }, { id: 1, text: "upstairs" }]);
});

test("a row grows where it stands, ends no earlier than before, and is another draft if the choice replaces it", () => {
  const { rows, answer } = empty();
  const [first, second] = answer(false, " up", " perhaps");
  const [grown, replaced] = answer(false, " upon a", " on a");
  assert.ok(grown === first && replaced !== second);
  assert.deepEqual(answer(true, " upon"), [first, undefined]);
  assert.deepEqual(rows.shown, [" upon a"]);
});
