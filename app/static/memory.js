// @ts-check
/**
 * What survives a reload: the text and the settings. Each tab keeps its own text (sessionStorage), so that two tabs
 * do not overwrite each other; a new tab starts with the text last written anywhere (localStorage), unless that tab
 * was incognito.
 */

const TEXT = "polydraft.text";
const SETTINGS = "polydraft.settings";
const INCOGNITO = "polydraft.incognito";

/** @returns {string} */
export function recallText() {
  return attempt(() => sessionStorage.getItem(TEXT) ?? localStorage.getItem(TEXT)) ?? "";
}

/**
 * @param {string} text
 * @returns {boolean} false when the browser has no room for it, or allows no storage
 */
export function keepText(text) {
  const here = attempt(() => (sessionStorage.setItem(TEXT, text), true));
  const everywhere = isIncognito() || attempt(() => (localStorage.setItem(TEXT, text), true));
  return Boolean(here && everywhere);
}

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
