/** Lines of lists and indented lines. */

import assert from "node:assert/strict";
import test from "node:test";

import { indentation, nextMarker } from "../../../../app/static/editor/lists.js";

test("the next item of a list has the next marker, and one after an empty item none", () => {
  for (const [line, marker] of [
    ["- eggs", "- "], ["  * eggs", "  * "], ["•\teggs", "•\t"], ["9. eggs", "10. "], ["3)  eggs", "4)  "],
    ["- ", ""], ["  12. ", ""], ["  a) x", null], ["-eggs", null], ["2026. eggs", "2027. "], ["12345. eggs", null], ["eggs", null],
  ]) assert.equal(nextMarker(line), marker, line);
});

test("Tab indents an empty line of a text that has begun", () => {
  const at = (text, start = text.length, end = start) => indentation(text, { selectionStart: start, selectionEnd: end });
  assert.equal(at("So\n"), "\t");
  assert.equal(at("So\n\t"), "\t");
  for (const [text, start, end] of [["So"], ["\n"], [""], ["So\nit"], ["So\n", 2], ["So\n\t", 3, 4]]) {
    assert.equal(at(text, start, end), "", JSON.stringify(text));
  }
});
