/** The rows of the list: what a request says of those that stay. */

import assert from "node:assert/strict";
import test from "node:test";

import { Rows } from "../../../../app/static/editor/rows.js";

test("a row that the writer began says so in the next request, until a key", () => {
  const rows = new Rows();
  rows.resize(2);
  rows.receive("Once", "Once", {
    drafts: [{ id: 0, text: " upon a time", probability: 0.4, whole: 0.1, finished: false }], settled: true, shortens: false,
  });
  rows.begin("Once", " upstairs");
  assert.deepEqual(rows.kept(), [{ id: 0, text: " upon a time" }, { id: 1, text: " upstairs", chosen: true }]);
  rows.follow("Once ");
  assert.deepEqual(rows.kept(), [{ id: 0, text: "upon a time" }, { id: 1, text: "upstairs" }]);
});
