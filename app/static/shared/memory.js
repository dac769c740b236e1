// @ts-check
/**
 * Values in the browser's sessionStorage and localStorage: settings, incognito, which document a tab has open, and
 * unsaved text. sessionStorage belongs to one tab and survives a reload; localStorage is shared by all tabs.
 */

export const SETTINGS = "polydraft.settings"; // the settings of drafts
export const PANEL = "polydraft.panel"; // whether the panel is open, and how it shows chances
export const VIEW = "polydraft.view"; // font, size, width and spacing of the text
export const KEYS = "polydraft.keys"; // the writer's own keys
export const NEVER = "polydraft.never"; // what no draft of any document contains
export const TAKES = "polydraft.takes"; // how many drafts were taken in this browser
export const LARGER = "polydraft.larger"; // whether the line about larger models was closed
export const UNSAVED = "polydraft.unsaved."; // + id

const INCOGNITO = "polydraft.incognito";
const TAB = "polydraft.tab";
const LAST = "polydraft.last";
const COPIES = "polydraft.copies";

const COPIES_ROOM = 200_000; // characters

let storing = true;

/** Store nothing, and read nothing that is stored: the page around the editor is somebody else's. */
export function storeNothing() {
  storing = false;
}

/** @typedef {import("../documents/document.js").Document} Document */
/**
 * The document that a tab has open, its selection, and how far it is scrolled.
 * @typedef {{id: string, caret: number[], scroll: number}} Place
 */

export function isIncognito() {
  return attempt(() => sessionStorage.getItem(INCOGNITO)) === "on";
}

/** @param {boolean} on */
export function setIncognito(on) {
  attempt(() => sessionStorage.setItem(INCOGNITO, on ? "on" : "off"));
}

/** @param {boolean} forTab */
const storageOf = (forTab) => (forTab ? sessionStorage : localStorage);

/**
 * What was kept, in this browser or for this tab; or null.
 * @param {string} key
 * @returns {any}
 */
export function recall(key, forTab = false) {
  return attempt(() => JSON.parse(storageOf(forTab).getItem(key) ?? "null"));
}

/**
 * @param {string} key
 * @param {unknown} value null deletes what was kept
 */
export function keep(key, value, forTab = false) {
  attempt(() => (value === null ? storageOf(forTab).removeItem(key) : storageOf(forTab).setItem(key, JSON.stringify(value))));
}

/** Copies of private text made in this tab. @returns {import("../editor/privacy.js").Copy[]} */
export const recallCopies = () => recall(COPIES, true) ?? [];

/** @param {import("../editor/privacy.js").Copy[]} copies newest last; the oldest are dropped if there is too little room */
export function keepCopies(copies) {
  let room = COPIES_ROOM;
  const newest = [...copies].reverse().filter(({ text }) => (room -= text.length) >= 0);
  keep(COPIES, newest.reverse(), true);
}

/** @returns {Place | null} */
export const recallPlace = () => recall(TAB, true);

/** @param {Place} place */
export const keepPlace = (place) => keep(TAB, place, true);

/** The id of the document that was saved last, in any tab. */
export function lastDocument() {
  return attempt(() => localStorage.getItem(LAST));
}

/** @param {string} id */
export function keepLastDocument(id) {
  attempt(() => localStorage.setItem(LAST, id));
}

/**
 * Store unsaved text: because the page is being closed, or, in incognito, for this tab only.
 * @param {Document} document its `revision` is the one that this text was edited from
 * @param {boolean} forTab
 * @returns {boolean} false if the browser has no room for it or allows no storage
 */
export function keepUnsaved(document, forTab) {
  return attempt(() => (storageOf(forTab).setItem(UNSAVED + document.id, JSON.stringify(document)), true)) ?? false;
}

/** @param {string} id @param {boolean} forTab */
export function forgetUnsaved(id, forTab) {
  keep(UNSAVED + id, null, forTab);
}

/** @param {boolean} forTab @returns {Document[]} */
export function recallUnsaved(forTab) {
  const read = () => {
    const keys = Object.keys(storageOf(forTab)).filter((key) => key.startsWith(UNSAVED));
    const documents = keys.map((key) => recall(key, forTab));
    return documents.filter((document, n) => document?.id === keys[n].slice(UNSAVED.length)); // not a damaged one
  };
  return attempt(read) ?? [];
}

/**
 * Access the browser's storage. It throws if it is full, switched off or damaged; then, and after `storeNothing`, this
 * returns null, and values last as long as the page.
 * @template T
 * @param {() => T} action
 * @returns {T | null}
 */
export function attempt(action) {
  try {
    return storing ? action() : null;
  } catch {
    return null;
  }
}
