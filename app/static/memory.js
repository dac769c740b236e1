// @ts-check
/**
 * What the browser's small storage keeps: the settings, incognito, which document a tab has open, and what is not yet
 * in a document. sessionStorage belongs to the tab and survives a reload; localStorage belongs to the address.
 */

const TEXT = "polydraft.text"; // where versions before documents kept the text
const SETTINGS = "polydraft.settings";
const INCOGNITO = "polydraft.incognito";
const TAB = "polydraft.tab";
const LAST = "polydraft.last";
const COPIES = "polydraft.copies";
export const UNSAVED = "polydraft.unsaved."; // + id

const COPIES_ROOM = 200_000; // characters

/** @typedef {import("./document.js").Document} Document */
/** @typedef {{id: string, caret: number[], scroll: number}} Place the document that a tab has open, and where in it */

/** Whether what is written in this tab is for this tab alone. */
export function isIncognito() {
  return attempt(() => sessionStorage.getItem(INCOGNITO)) === "on";
}

/** @param {boolean} on */
export function setIncognito(on) {
  attempt(() => sessionStorage.setItem(INCOGNITO, on ? "on" : "off"));
}

/** @returns {Record<string, unknown>} */
export function recallSettings() {
  return attempt(() => JSON.parse(localStorage.getItem(SETTINGS) ?? "{}")) ?? {};
}

/** @param {Record<string, number | boolean>} settings */
export function keepSettings(settings) {
  attempt(() => localStorage.setItem(SETTINGS, JSON.stringify(settings)));
}

/** What was copied out of private text in this tab. @returns {import("./privacy.js").Copy[]} */
export function recallCopies() {
  return attempt(() => JSON.parse(sessionStorage.getItem(COPIES) ?? "[]")) ?? [];
}

/** @param {import("./privacy.js").Copy[]} copies the newest last; as many as there is room for are kept */
export function keepCopies(copies) {
  let room = COPIES_ROOM;
  const newest = [...copies].reverse().filter(({ text }) => (room -= text.length) >= 0);
  attempt(() => sessionStorage.setItem(COPIES, JSON.stringify(newest.reverse())));
}

/** @returns {Place | null} */
export function recallPlace() {
  return attempt(() => JSON.parse(sessionStorage.getItem(TAB) ?? "null"));
}

/** @param {Place} place */
export function keepPlace(place) {
  attempt(() => sessionStorage.setItem(TAB, JSON.stringify(place)));
}

/** The document that was written in last, in any tab. */
export function lastDocument() {
  return attempt(() => localStorage.getItem(LAST));
}

/** @param {string} id */
export function keepLastDocument(id) {
  attempt(() => localStorage.setItem(LAST, id));
}

/**
 * Keep what a document does not have yet: because the page goes before it could be saved, or, in incognito, for this
 * tab alone.
 * @param {Document} document its `revision` is the one that this text began with
 * @param {boolean} forTab
 * @returns {boolean} false where the browser has no room for it, or allows no storage
 */
export function keepUnsaved(document, forTab) {
  const storage = () => (forTab ? sessionStorage : localStorage);
  return attempt(() => (storage().setItem(UNSAVED + document.id, JSON.stringify(document)), true)) ?? false;
}

/**
 * @param {string} id
 * @param {boolean} forTab
 */
export function forgetUnsaved(id, forTab) {
  attempt(() => (forTab ? sessionStorage : localStorage).removeItem(UNSAVED + id));
}

/**
 * @param {boolean} forTab
 * @returns {Document[]}
 */
export function recallUnsaved(forTab) {
  const read = () => {
    const storage = forTab ? sessionStorage : localStorage;
    const keys = Object.keys(storage).filter((key) => key.startsWith(UNSAVED));
    return keys.map((key) => JSON.parse(storage.getItem(key) ?? "null")).filter(Boolean);
  };
  return attempt(read) ?? [];
}

/** Texts that versions before documents kept: this tab's first. @returns {string[]} */
export function oldTexts() {
  const texts = attempt(() => [sessionStorage.getItem(TEXT), localStorage.getItem(TEXT)]) ?? [];
  return [...new Set(texts.filter((text) => text?.trim()))].map(String);
}

export function forgetOldTexts() {
  attempt(() => sessionStorage.removeItem(TEXT));
  attempt(() => localStorage.removeItem(TEXT));
}

/**
 * Storage throws when it is full, switched off or damaged; each of these means "nothing kept".
 * @template T
 * @param {() => T} action
 * @returns {T | null}
 */
function attempt(action) {
  try {
    return action();
  } catch {
    return null;
  }
}
