// @ts-check
/** Documents that the server keeps as plain text files; see app/web/routes/documents.py. */

import { Changed } from "./document.js";
import { ServerError, getJson, postJson, postLongText } from "../shared/transport.js";

/** @typedef {import("./document.js").Document} Document */
/** @typedef {import("./document.js").Entry} Entry */

const LARGE = 500_000; // characters of a text that is sent in slices
const NO_KEYS = { typed: 0, taken: 0, takes: 0 };

/** Something in the folder that cannot be used or is missing. `note`: for `setAside`. @typedef {{message: string, note: string}} Problem */

/** Where documents are kept, the folder for files, and what is wrong in it. */
export async function whereKept() {
  const { kept, folder, problems } = await getJson("/api/documents");
  return {
    where: /** @type {"browser" | "files"} */ (kept), folder: /** @type {string} */ (folder),
    problems: /** @type {Problem[]} */ (problems),
  };
}

/** Remove the note of a problem; no text is touched. @param {string} note */
export async function setAside(note) {
  await postJson("/api/documents/set-aside", { note });
}

/** @param {"browser" | "files"} where */
export async function keepIn(where) {
  await postJson("/api/documents/keep", { where });
}

export class FileDocuments {
  constructor() {
    this.where = /** @type {const} */ ("files");
  }

  /** @returns {Promise<Entry[]>} most recently changed first */
  async list() {
    return (await getJson("/api/documents")).documents.map(fromServer);
  }

  /**
   * @param {string} id
   * @returns {Promise<Document | null>} null if there is none with this id
   */
  async read(id) {
    const path = `/api/documents/${encodeURIComponent(id)}`;
    try {
      return fromServer(await getJson(path));
    } catch (error) {
      if (!(error instanceof ServerError) || error.status !== 404) throw error;
      // The list finds a file that another program has renamed.
      return (await this.list()).some((entry) => entry.id === id) ? fromServer(await getJson(path)) : null;
    }
  }

  /**
   * @param {Document} document
   * @param {string} base
   * @returns {Promise<Entry>}
   */
  async write({ id, title, text, caret, privateRanges, unsure, keys, stores, background, never, created, changed, binned }, base) {
    const body = {
      id, title, caret, private: privateRanges, unsure, keys, stores, background, never, created, changed, binned,
      base: base || null,
    };
    const path = "/api/documents/write";
    try {
      return fromServer(await (text.length > LARGE ? postLongText(path, body, text) : postJson(path, { ...body, text })));
    } catch (error) {
      if (error instanceof ServerError && error.changed) throw new Changed(error.message);
      throw error;
    }
  }

  /** @param {string} id @param {boolean} on */
  async putInBin(id, on) {
    await postJson("/api/documents/bin", { id, on });
  }

  /** @param {string} id */
  async remove(id) {
    await postJson("/api/documents/remove", { id });
  }
}

/** @param {any} document as the server sends it */
function fromServer({ private: privateRanges, keys, file: _, ...entry }) {
  return { ...entry, privateRanges, keys: { ...NO_KEYS, ...keys } };
}
