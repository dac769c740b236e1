/** What is sent to the stores that learn, without a page: a text, the server's answers, and the order in which they come. */

import assert from "node:assert/strict";
import test, { beforeEach } from "node:test";

globalThis.addEventListener ??= () => {};
globalThis.BroadcastChannel = class { addEventListener() {} postMessage() {} };
globalThis.sessionStorage = { setItem() {} };
const { Learning } = await import("../../../../app/static/editor/learning.js");

const element = () => ({ addEventListener() {}, setAttribute() {}, classList: { toggle() {} }, textContent: "", hidden: true });
const rest = () => new Promise((done) => setImmediate(done));
let server; // what it answers and has been sent; `late`: how to answer the first request for the list

beforeEach(() => {
  server = { learning: ["me"], learned: [], reached: true, late: null };
  globalThis.fetch = async (path, { body }) => {
    if (!server.reached) throw new TypeError("Failed to fetch");
    if (path.endsWith("/learn")) server.learned.push(JSON.parse(body).text);
    const learning = server.learning;
    if (server.late === true) await new Promise((answer) => (server.late = answer));
    return { ok: true, json: async () => (path.endsWith("/learn") ? { stores: server.learning } : { learning, removed: "a" }) };
  };
});

/** A text whose store learns. `secret`: the part of it that was typed in incognito. */
async function learner() {
  const sign = element();
  const root = { querySelector: (name) => (name === ".pd-learns" ? sign : element()), addEventListener() {} };
  const textarea = { addEventListener() {}, value: "", selectionStart: 0 };
  const incognito = { on: false };
  let secret = [0, 0];
  const privacy = {
    hides: (start, end) => start < secret[1] && secret[0] < end,
    publicFrom: (end) => Math.min(secret[1], end),
  };
  const nothing = { forgetAnswers() {}, forgetDrafts() {}, forgetTab() {} };
  const learning = new Learning(root, { textarea, privacy, incognito }, nothing);
  await learning.refresh();
  return {
    learning, sign, incognito,
    hide: (start, end) => (secret = [start, end]),
    async write(text, inputType = "insertText") {
      textarea.value += text;
      textarea.selectionStart = textarea.value.length;
      learning.input({ inputType });
      await rest();
    },
    async enter() {
      await this.write("\n", "insertLineBreak");
    },
    async take(text) {
      const before = textarea.value;
      await this.write(text);
      learning.taken({ before, text });
    },
  };
}

test("a paragraph is learned once Enter ends it or the text is copied, and once alone", async () => {
  const writer = await learner();
  await writer.write("One.");
  assert.deepEqual(server.learned, []);
  await writer.enter();
  await writer.write("One.");
  await writer.enter();
  await writer.write("Half \ud83d of two.");
  writer.learning.finishAll();
  await rest();
  assert.deepEqual(server.learned, ["One.", "Half \ufffd of two."]);
});

test("a draft is learned with six words before it once the writer goes on, and not if it was undone", async () => {
  const writer = await learner();
  await writer.write("a b c d e f g");
  await writer.take(" to the market");
  assert.deepEqual(server.learned, []);
  await writer.write(" and");
  assert.deepEqual(server.learned, ["b c d e f g to the market"]);
  const { textarea } = writer.learning;
  await writer.take(" on and on");
  textarea.value = textarea.value.slice(0, -" on and on".length);
  await writer.write("!");
  assert.equal(server.learned.length, 1);
});

test("nothing of what was typed in incognito is learned, nor anything while it is on", async () => {
  const writer = await learner();
  await writer.write("Open, μυστικό");
  writer.hide(6, 13);
  await writer.enter();
  await writer.write("Open");
  await writer.take(" to the market");
  writer.learning.switchIncognito(true);
  assert.equal(writer.sign.textContent, "Learning paused");
  await writer.enter();
  await writer.write("Also open.");
  writer.learning.finishAll();
  await rest();
  assert.deepEqual(server.learned, []);
});

test("what waits for the server is dropped with what is forgotten", async () => {
  const writer = await learner();
  server.reached = false;
  await writer.write("A secret.");
  await writer.enter();
  writer.learning.drop();
  server.reached = true;
  await writer.write("Open.");
  await writer.enter();
  assert.deepEqual(server.learned, ["Open."]);
});

test("a list of stores that comes late replaces no newer one", async () => {
  const writer = await learner();
  server.late = true;
  server.learning = [];
  const older = writer.learning.refresh({ anew: true });
  await rest();
  const answer = server.late;
  server.learning = ["me"];
  await writer.learning.refresh({ anew: true });
  answer();
  await older;
  assert.equal(writer.sign.textContent, "Learning into me");
});
