// @ts-check
/** One tab per document: a Web Lock that a tab holds while it has the document open. Closing the tab lets go of it. */

/**
 * @param {string} id of a document
 * @param {AbortSignal | null} signal wait until it is free or this says stop; null: only if it is free now
 * @returns {Promise<(() => void) | null>} lets go of the document; null if it was not had
 */
export function lockDocument(id, signal = null) {
  // Without locks (an old browser) a text that was changed elsewhere is still noticed when it is saved.
  if (!navigator.locks) return Promise.resolve(() => {});
  return new Promise((resolve) => {
    const how = signal ? { signal } : { ifAvailable: true };
    navigator.locks
      .request(`polydraft.document.${id}`, how, (lock) => {
        if (!lock) return resolve(null);
        return new Promise((release) => resolve(() => release(undefined)));
      })
      .catch(() => resolve(null)); // the signal
  });
}

/** The documents that are open in some tab of this browser. @returns {Promise<Set<string>>} */
export async function openDocuments() {
  const prefix = "polydraft.document.";
  const held = (await navigator.locks?.query())?.held ?? [];
  return new Set(held.map(({ name = "" }) => name).filter((name) => name.startsWith(prefix)).map((name) => name.slice(prefix.length)));
}
