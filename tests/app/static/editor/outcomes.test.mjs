/** Whether displayed rows came true. */

import assert from "node:assert/strict";
import test from "node:test";

import { Outcomes } from "../../../../app/static/editor/outcomes.js";

/** The outcomes of a row " to the" after "She went", with a chance of one half, if the text then becomes these. */
function outcomes(...texts) {
  const found = [];
  const open = new Outcomes((chance, right) => found.push([chance, right]));
  const row = { lineage: 1, anchor: "She went", text: " to the", chance: 0.5 };
  open.displayed(row);
  open.displayed({ ...row, text: " to the river" }); // only the first appearance counts
  for (const text of texts) open.follow(text);
  return found;
}

test("a row comes true when it is written to its end, does not when another word is, and else stays open", () => {
  assert.deepEqual(outcomes("She went t", "She went to the"), [[0.5, true]]);
  assert.deepEqual(outcomes("She went to the market"), [[0.5, true]]);
  assert.deepEqual(outcomes("She went to", "She went ta"), [[0.5, false]]);
  assert.deepEqual(outcomes("She went to", "She wen", "She went"), []);
  assert.deepEqual(outcomes("He went ta", "He went to the"), [], "the text before it has changed");
});

test("rows without a chance, of other documents and of long ago are not judged", () => {
  const judged = [];
  const open = new Outcomes((chance) => judged.push(chance));
  open.displayed({ lineage: 0, anchor: "", text: "a" });
  for (let lineage = 1; lineage <= 40; lineage++) open.displayed({ lineage, anchor: "", text: "a", chance: lineage });
  open.follow("a");
  assert.equal(judged.length, 32);
  assert.equal(judged[0], 9);
  open.displayed({ lineage: 50, anchor: "", text: "a", chance: 1 });
  open.forget();
  open.follow("a");
  assert.equal(judged.length, 32);
});
