/** When the page says that the server is slow. */

import assert from "node:assert/strict";
import test from "node:test";

import { Slow } from "../../../../app/static/editor/slow.js";

test("after two seconds without an answer a word says so, also if keys replaced the request, until one comes or nobody waits", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const word = { hidden: true };
  const root = { querySelector: () => word, toggleAttribute: (name, on) => (root[name] = on) };
  const slow = new Slow(root, () => {});
  slow.waits();
  t.mock.timers.tick(1500);
  slow.waits();
  assert.ok(word.hidden);
  t.mock.timers.tick(500);
  assert.ok(!word.hidden && root["data-slow"]);
  slow.ends();
  assert.ok(word.hidden && !root["data-slow"]);
  slow.waits();
  t.mock.timers.tick(1999);
  slow.ends();
  t.mock.timers.tick(5000);
  assert.ok(word.hidden);
});
