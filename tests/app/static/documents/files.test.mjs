/** Files that become documents: their letters, exports of all documents, and what is refused. */

import assert from "node:assert/strict";
import test from "node:test";

import { MOST_BACKGROUND } from "../../../../app/static/documents/background.js";
import { MOST_TITLE, newDocument } from "../../../../app/static/documents/document.js";
import { readFile } from "../../../../app/static/documents/files.js";

const utf16 = (text) => new Uint8Array(new Uint16Array([...`\ufeff${text}`].map((letter) => letter.charCodeAt(0))).buffer);
const EXPORT = { format: "polydraft documents", version: 1 };
const exported = (...documents) => new File([JSON.stringify({ ...EXPORT, documents })], "All.json");

test("a file's text is read in its own letters, in lines, under its name", async () => {
  for (const [name, content, title, text] of [
    ["Letter.txt", "Dear Ms Hollis,\nthank you.", "Letter", "Dear Ms Hollis,\nthank you."],
    ["Notes.md", "# Notes\r\n\r\nand more\r", "Notes", "# Notes\n\nand more\n"],
    ["Old.txt", new Uint8Array([0x6e, 0x61, 0xef, 0x76, 0x65, 0x20, 0x93, 0x94]), "Old", "naïve “”"], // Windows-1252
    ["Wide.txt", utf16("größer"), "Wide", "größer"],
    ["empty.txt", "", "empty", ""],
    ["other.json", '{"a": 1}', "other.json", '{"a": 1}'],
  ]) assert.deepEqual(await readFile(new File([content], name)), { title, text }, name);
  const picture = new File([new Uint8Array([0x89, 0x50, 0, 0])], "picture.png");
  await assert.rejects(readFile(picture), /“picture\.png” is no text file\. Save it as plain text/);
});

test("an export comes back as it was, with lines as in the field and private ranges at their letters", async () => {
  const document = newDocument({ title: "One", text: "a\r\nsecret", privateRanges: [[3, 9]], stores: ["law.ngram"], background: "Mail" });
  const { documents: [found] } = await readFile(exported({ ...document, unknown: 1 }));
  assert.deepEqual(found, { ...document, text: "a\nsecret", privateRanges: [[2, 8]] });
});

test("of a damaged export nothing is added, and the reason is said", async () => {
  const id = crypto.randomUUID();
  for (const [change, words] of [
    [{ id: "../../x" }, /document 1: its id cannot be read\. Nothing was added\./],
    [{ text: 7 }, /its text cannot/],
    [{ title: "x".repeat(MOST_TITLE + 1) }, /its title cannot/],
    [{ background: "x".repeat(MOST_BACKGROUND + 1) }, /its background cannot/],
    [{ caret: [1] }, /its caret cannot/],
    [{ privateRanges: [["a"]] }, /its privateRanges cannot/],
    [{ unsure: 1 }, /its privacy cannot/],
    [{ stores: [3] }, /its stores cannot/],
    [{ keys: null }, /its keys cannot/],
    [{ changed: "now" }, /its dates cannot/],
  ]) await assert.rejects(readFile(exported({ id, text: "", ...change })), words, JSON.stringify(change).slice(0, 80));
  const newer = new File([JSON.stringify({ ...EXPORT, version: 2, documents: [] })], "All.json");
  await assert.rejects(readFile(newer), /newer Polydraft/);
});
