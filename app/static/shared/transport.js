// @ts-check
/** Requests to the server: JSON, streams of lines, and the message that the page is being closed. */

const JSON_TYPE = { "Content-Type": "application/json" };
const SLICE = 100_000; // characters converted at once

/** The address of the server's routes: where /page/shared/, which has this script, begins. */
const ROOT = new URL("../..", import.meta.url).pathname.replace(/\/$/, "");

/** Headers of every request. @type {Record<string, string>} */
const EVERY = {};

/** Send a key with every request; a page without one sends its cookie. @param {string} key */
export function useKey(key) {
  EVERY.Authorization = `Bearer ${key}`;
}

/** A request that had no answer, or an error as its answer; with a remedy, if there is one. */
export class RequestFailed extends Error {
  fix = "";
}

/** An error that the server returns, with its cause and a remedy. */
export class ServerError extends RequestFailed {
  /**
   * @param {string} message
   * @param {string} fix
   * @param {boolean} changed whether a document was not replaced because it was changed elsewhere
   * @param {number} status
   */
  constructor(message, fix = "", changed = false, status = 0) {
    super(message);
    this.fix = fix;
    this.changed = changed;
    this.status = status;
  }
}

/** The server cannot be reached. */
export class ConnectionLost extends RequestFailed {}

/**
 * Run requests, and return why one failed; null if none did, or if nobody wants the answer any more.
 * @param {() => Promise<unknown>} action
 * @param {AbortSignal} [signal]
 * @returns {Promise<RequestFailed | null>}
 */
export async function failureOf(action, signal) {
  try {
    await action();
  } catch (error) {
    if (signal?.aborted) return null;
    if (error instanceof RequestFailed) return error;
    throw error;
  }
  return null;
}

/** An id for this tab, new at every page load, so that tabs do not cancel each other's requests. */
export let TAB = freshId();

/** Identifies the page until it is closed; the server holds for it what it has forgotten and may undo. */
export const PAGE = freshId();

/**
 * Request drafts and call `onLine` for every line of the answer as it arrives.
 * @param {{n: number, before: string, settings: object, tab?: string, grow?: boolean}} request `tab`: instead of this one
 * @param {(line: any) => void} onLine
 * @param {AbortSignal} signal
 * @returns {Promise<RequestFailed | null>} why the answer is not complete; null if it is, or if nobody wants it any more
 */
export function streamDrafts(request, onLine, signal) {
  return failureOf(async () => readLines(await post("/api/drafts", { tab: TAB, ...request }, { signal }), onLine, signal), signal);
}

/**
 * Send a file and call `onLine` for every line of the answer.
 * @param {string} path
 * @param {File} file
 * @param {(line: any) => void} onLine
 */
export async function streamFile(path, file, onLine) {
  await readLines(await reach(path, { method: "POST", body: file }), onLine);
}

/**
 * Call `onLine` for every line of an answer as it arrives.
 * @param {string} path
 * @param {(line: any) => void} onLine
 * @param {AbortSignal} signal
 */
export async function streamLines(path, onLine, signal) {
  await readLines(await reach(path, { cache: "no-store", signal }), onLine, signal);
}

/**
 * @param {Response} response
 * @param {(line: any) => void} onLine
 * @param {AbortSignal} [signal]
 */
async function readLines(response, onLine, signal) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (signal?.aborted) throw error;
      throw new ConnectionLost("The connection ended in the middle of an answer.");
    });
    if (done) return;
    const lines = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line) onLine(JSON.parse(line));
  }
}

/** @param {string} path @returns {Promise<any>} */
export async function getJson(path) {
  return (await reach(path, { cache: "no-store" })).json();
}

/**
 * @param {string} path
 * @param {object} body
 * @returns {Promise<any>}
 */
export async function postJson(path, body) {
  return (await post(path, body)).json();
}

/**
 * The same with a long text, which is converted in slices, so typing stays fast.
 * @param {string} path
 * @param {object} body
 * @param {string} text its field `text`
 * @returns {Promise<any>}
 */
export async function postLongText(path, body, text) {
  const slices = [new Blob([JSON.stringify({ ...body, text: "" }).replace(/""}$/, '"')])];
  for (let from = 0; from < text.length; from += SLICE) {
    slices.push(new Blob([JSON.stringify(text.slice(from, from + SLICE)).slice(1, -1)]));
    if (!document.hidden) await new Promise((resolve) => setTimeout(resolve)); // for keys and drawing
  }
  return (await reach(path, { method: "POST", headers: JSON_TYPE, body: new Blob([...slices, '"}']) })).json();
}

/**
 * @param {string} path
 * @param {object} body sent as JSON
 * @param {RequestInit} [how]
 */
function post(path, body, how) {
  return reach(path, { method: "POST", headers: JSON_TYPE, body: JSON.stringify(body), ...how });
}

/** An id that no other tab has. */
export function freshId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** Make the server forget everything that this tab has sent; further requests are those of a new tab. */
export function beginAnew() {
  leaveAs(TAB);
  TAB = freshId();
}

/** Notify the server that this page is being closed. */
export function leave() {
  leaveAs(TAB);
  leaveAs(PAGE);
}

/** @param {string} id of a tab. The request outlives the page. */
export function leaveAs(id) {
  post("/api/leave", { tab: id }, { keepalive: true }).catch(() => {}); // nobody is left to be told
}

/**
 * @param {string} path
 * @param {RequestInit} init
 * @returns {Promise<Response>} of a request that the server has accepted
 */
async function reach(path, init) {
  const response = await fetch(ROOT + path, { ...init, headers: { ...init.headers, ...EVERY } }).catch((error) => {
    if (init.signal?.aborted) throw error;
    throw new ConnectionLost("No connection to the Polydraft server.");
  });
  if (!response.ok) throw await errorFrom(response);
  return response;
}

/** @param {Response} response */
async function errorFrom(response) {
  if (response.status === 401 && EVERY.Authorization) {
    return new ServerError("The server of this page was started anew.", "Copy your text, and load the page again.", false, 401);
  }
  try {
    const { message, fix, changed } = await response.json();
    if (message) return new ServerError(message, fix, changed, response.status);
  } catch {
    // Not the server's JSON: the answer comes from a proxy or a crashed server, and only its status is known.
  }
  return new ServerError(`The server answered with an error (${response.status}).`, "Look at the window where Polydraft runs.");
}
