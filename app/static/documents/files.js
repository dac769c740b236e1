// @ts-check
/** Opens and saves text files, and exports and imports all documents as one file. */

import { MOST_BACKGROUND } from "./background.js";
import { problemOf } from "./never.js";
import { MOST_TITLE, fileNameOf, inLines, newDocument } from "./document.js";

/** @typedef {import("./document.js").Document} Document */

const FORMAT = "polydraft documents";
const VERSION = 1;
const LARGEST = 32 << 20; // bytes of a text file; an export may be larger

/**
 * Save a file through the browser's downloads.
 * @param {string} name
 * @param {string} content
 * @param {string} type
 */
export function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: `${type};charset=utf-8` }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * Save the text, unchanged, as a file of this kind.
 * @param {{title: string, opening: string}} entry
 * @param {string} text
 * @param {"txt" | "md"} kind
 * @returns {string} the file's name
 */
export function exportText(entry, text, kind) {
  const name = `${fileNameOf(entry)}.${kind}`;
  download(name, text, kind === "md" ? "text/markdown" : "text/plain");
  return name;
}

/**
 * @param {Document[]} documents
 * @returns {string} the file's name
 */
export function exportAll(documents) {
  const name = `Polydraft documents ${new Date().toISOString().slice(0, 10)}.json`;
  const kept = documents.map(({ revision, opening, words, ...document }) => document);
  download(name, JSON.stringify({ format: FORMAT, version: VERSION, documents: kept }, null, 1), "application/json");
  return name;
}

/**
 * @param {File} file
 * @returns {Promise<{title: string, text: string} | {documents: Document[]}>} a text, or the documents of an export;
 *   rejected with a sentence for the user if the file is neither
 */
export async function readFile(file) {
  const { name, size } = file;
  const isJson = /\.json$/i.test(name);
  if (!isJson && size > LARGEST) throw new Error(`“${name}” is larger than 32 MB, the most that a document can hold.`);
  const text = decoded(new Uint8Array(await file.arrayBuffer()));
  if (text === null) throw new Error(`“${name}” is no text file. Save it as plain text in the program that made it.`);
  const documents = isJson ? documentsOf(text, name) : null;
  return documents ? { documents } : { title: name.replace(/\.(txt|text|md|markdown)$/i, ""), text };
}

/**
 * Decode text: UTF-8, UTF-16 with a byte order mark, or else Windows-1252.
 * @param {Uint8Array} bytes
 * @returns {string | null} null if it is not text
 */
function decoded(bytes) {
  const sixteen = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : "";
  if (sixteen) return inLines(new TextDecoder(sixteen).decode(bytes));
  if (bytes.subarray(0, 100_000).includes(0)) return null;
  try {
    return inLines(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch {
    return inLines(new TextDecoder("windows-1252").decode(bytes)); // decodes every byte
  }
}

/**
 * @param {string} text
 * @param {string} name of its file
 * @returns {Document[] | null} null for other JSON, which is opened as text
 */
function documentsOf(text, name) {
  let content;
  try {
    content = JSON.parse(text);
  } catch {
    return null;
  }
  if (content?.format !== FORMAT) return null;
  if (content.version !== VERSION) throw new Error(`“${name}” was made by a newer Polydraft. Update this one first.`);
  return content.documents.map((/** @type {any} */ given, /** @type {number} */ n) => checked(given, `“${name}”, document ${n + 1}`));
}

/**
 * @param {any} given
 * @param {string} where
 * @returns {Document}
 */
function checked(given, where) {
  const fresh = newDocument();
  const document = { ...fresh, ...given };
  const numbers = (/** @type {unknown} */ list) => Array.isArray(list) && list.every(Number.isInteger);
  const sound = {
    id: /^[0-9a-f][0-9a-f-]{7,63}$/.test(document.id),
    title: typeof document.title === "string" && document.title.length <= MOST_TITLE,
    text: typeof given?.text === "string",
    caret: numbers(document.caret) && document.caret.length === 2,
    privateRanges: Array.isArray(document.privateRanges) && document.privateRanges.every(numbers),
    privacy: typeof document.unsure === "boolean",
    stores: Array.isArray(document.stores) && document.stores.every((/** @type {unknown} */ file) => file && typeof file === "string"),
    background: typeof document.background === "string" && document.background.length <= MOST_BACKGROUND,
    never: typeof document.never === "string" && !problemOf(document.never),
    keys: numbers(Object.values(document.keys ?? [null])),
    dates: numbers([document.created, document.changed]) && (document.binned === null || Number.isInteger(document.binned)),
  };
  const wrong = Object.entries(sound).find(([, right]) => !right);
  if (wrong) throw new Error(`${where}: its ${wrong[0]} cannot be read. Nothing was added.`);
  const known = /** @type {Document} */ (Object.fromEntries(Object.keys(fresh).map((key) => [key, document[key]])));
  const { text } = known;
  const place = (/** @type {number} */ at) => inLines(text.slice(0, at)).length;
  const privateRanges = known.privateRanges.map((range) => range.map(place));
  return { ...known, text: inLines(text), privateRanges, revision: "" };
}
