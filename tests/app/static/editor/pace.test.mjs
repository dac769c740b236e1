/** The writer's numbers, measured by a clock of the test. */

import assert from "node:assert/strict";
import test, { mock } from "node:test";

import { Pace, withOffset } from "../../../../app/static/editor/pace.js";
import { cases } from "../cases.mjs";

globalThis.addEventListener ??= () => {}; // the browser's, for the end of the page
const stored = new Map();
globalThis.localStorage = {
  getItem: (name) => stored.get(name) ?? null,
  setItem: (name, value) => stored.set(name, value),
  removeItem: (name) => stored.delete(name),
};
mock.timers.enable({ apis: ["setTimeout"] }); // numbers are stored a second later

const close = (one, other, share) => assert.ok(Math.abs(one - other) <= share * Math.abs(other), `${one} is not near ${other}`);

/** The numbers of a writer: so many times between keys, in ms, and so many times from first sight to taking. */
function writer(keys, takes) {
  const pace = new Pace(() => false);
  let now = 0;
  for (const [ms, times] of keys) for (let i = 0; i < times; i++) pace.typed((now += ms));
  for (const [ms, times] of takes) for (let i = 0; i < times; i++) pace.taken(9, ms, false);
  return pace;
}

const savedBy = (pace) => Object.values(pace.numbers.weeks).reduce((total, ms) => total + ms, 0);

test("impossible times are no part of a writer's speed, and pauses for thought are counted apart", () => {
  const usual = writer([[60_000, 1], [150, 300], [3000, 40], [5, 500]], [[22, 300], [900, 30]]);
  assert.equal(usual.keys, 300);
  assert.equal(usual.thought.count, 40);
  close(usual.costs.key_ms, 150, 0.1);
  close(usual.costs.take_ms, 900, 0.1);
  assert.equal(usual.pause, 1000);
  assert.equal(writer([], [[22, 300]]).costs.take_ms, 700); // the published mean
  const slow = writer([[60_000, 1], [900, 300], [8000, 40]], []);
  close(slow.costs.key_ms, 900, 0.1);
  close(slow.pause, 2700, 0.1);
  assert.equal(slow.thought.count, 40);
});

test("a row saves its keys, less the time to take it whole or word by word", () => {
  for (const { taken, replaced, saved_ms } of cases("costs")) {
    const pace = new Pace(() => false);
    taken.forEach((word, n) => pace.taken(word.length + (n ? 0 : replaced), 500, n > 0));
    assert.equal(savedBy(pace), saved_ms, taken.join(""));
  }
});

test("an offset corrects a chance", () => {
  for (const { chance, offset, corrected } of cases("offsets")) {
    assert.ok(Math.abs(withOffset(chance, offset) - corrected) < 1e-9, `${chance} by ${offset}`);
  }
});

test("a writer's offset brings the chances to the share that came true, within the server's bounds", () => {
  const judged = (rows, right, chance) => {
    const pace = new Pace(() => false);
    pace.numbers.judged[Math.floor(chance * 10)] = rows;
    pace.numbers.right[Math.floor(chance * 10)] = right;
    return pace.offset;
  };
  assert.equal(judged(0, 0, 0.5), 0);
  const offset = judged(1000, 750, 0.55);
  close(withOffset(0.55, offset), 0.75, 0.01);
  const offsets = cases("offsets").map((each) => each.offset);
  assert.equal(judged(1000, 1000, 0.1), Math.max(...offsets));
  assert.equal(judged(1000, 0, 0.9), Math.min(...offsets));
});

test("damaged numbers are none", () => {
  for (const damaged of ["{", "[1]", '{"keys": [1, "a"], "takes": [], "shown": 1, "taken": 1, "weeks": {}}', '{"keys": null}']) {
    stored.set("polydraft.pace", damaged);
    assert.equal(new Pace(() => true).keys, 0, damaged);
  }
  const whole = writer([[60_000, 1], [150, 300]], []);
  whole.keep();
  assert.equal(new Pace(() => true).keys, 300);
  stored.clear();
});
