// @ts-check
/**
 * Sends requests for drafts. At most one is running: a newer one cancels it. Complete answers are cached, for going back
 * by backspace and undo.
 */

import { cropped } from "./drafting.js";
import { ConnectionLost, ServerError, streamDrafts } from "../shared/transport.js";

/** @typedef {import("./drafting.js").Draft} Draft */

/**
 * Further fields of a request. `kept`: the rows that stay, and the rest of each; `grow`: continue them to the full
 * length; `after`: the text after the caret; `all`: also drafts that do not lead to that text; `unasked`: the writer
 * has not asked; `corrects`: rows may correct a slip; `merge_alike`: rows that differ in nothing count as one; `base_stores`, `background`, `never`: the document's;
 * `avoid`: drafts that were shown, with none of which another may begin;
 * `show`: the writer's speed, and the rows on the screen.
 * @typedef {{kept?: {id: number, text: string, chosen?: true}[], grow?: boolean, after?: string, all?: boolean, unasked?: boolean,
 *            merge_alike?: boolean, corrects?: boolean, base_stores?: string[], background?: string, never?: string[], avoid?: string[], show?: Record<string, number | boolean | string[]>}} Extra
 *
 * A complete answer. `pays`: the rows that save time, best first; `ghost`: the number of the best row.
 * @typedef {{drafts: Draft[], pays?: Paying[], ghost?: number | null}} Answer
 * @typedef {{id: number, text: string, chance: number, saved_ms: number}} Paying
 *
 * A running request. `pressed`: time of the key down event that caused it; `freed`: how many rows it must fill, of
 * `k`; `answered`: whether drafts have arrived; `wanted`: whether
 * the writer has asked for them;
 * `unseen`: whether its drafts are not displayed;
 * `decides`: whether only the rows that save time are displayed, once they are complete; `drafts`: those received so far;
 * `next`: the request that follows, because a key came after this one.
 * @typedef {{n: number, before: string, key: string, pressed: number | null, freed: number, k: number, answered: boolean,
 *            filled: boolean, forSettings: boolean, wanted: boolean, decides: boolean, unseen?: boolean, done: boolean, drafts: Draft[],
 *            next: {pressed: number | null} | null, controller: AbortController}} Request
 */

const REMEMBERED = 16; // complete answers in the cache

/**
 * @param {string} before
 * @param {string} after
 */
const keyOf = (before, after) => `${before}\0${after}`;

export class Requests {
  /**
   * @param {{drafts: (request: Request, line: any) => void, figures: (line: any, request: Request) => void,
   *          problem: (problem: ServerError | any) => void, lost: () => void,
   *          ended: (request: Request) => void}} callbacks
   */
  constructor(callbacks) {
    this.callbacks = callbacks;
    /** @type {Request | null} */
    this.running = null;
    this.n = 0;
    /** Complete answers by the text sent. @type {Map<string, Answer>} */
    this.remembered = new Map();
  }

  /**
   * Request drafts after `before` from the server.
   * @param {string} before
   * @param {object} settings
   * @param {Extra} extra
   * @param {{pressed: number | null, freed: number, k: number, forSettings: boolean, wanted: boolean,
   *          decides: boolean, unseen?: boolean}} how
   */
  send(before, settings, extra, how) {
    this.abort();
    const controller = new AbortController();
    const window = cropped(before);
    /** @type {Request} */
    const request = {
      ...how, n: this.number(), before, key: extra.unasked ? keyOf(window, extra.after ?? "") : "", controller,
      answered: false, filled: how.freed === 0, done: false, drafts: [], next: null,
    };
    this.running = request;
    streamDrafts(
      { n: request.n, before: window, settings, ...extra }, (line) => this.receive(request, line), controller.signal,
    )
      .then(() => this.finish(request))
      .catch((error) => this.failed(request, error));
  }

  /** The number of a request that is newer than all others of this tab. */
  number() {
    return ++this.n;
  }

  abort() {
    this.running?.controller.abort();
    this.running = null;
  }

  /**
   * @param {string} before
   * @param {string} after
   */
  recall(before, after) {
    return this.remembered.get(keyOf(cropped(before), after));
  }

  /**
   * Handle one line of the answer.
   * @param {Request} request
   * @param {any} line
   */
  receive(request, line) {
    if (request !== this.running || line.n !== request.n) return;
    if (line.type === "error") this.callbacks.problem(line);
    else if (line.type === "stats") this.callbacks.figures(line, request);
    else if (line.type === "drafts") {
      request.done = line.done;
      request.drafts = line.drafts;
      if (line.done && request.key) this.remember(request, line);
      this.callbacks.drafts(request, line);
      request.answered = true;
    }
  }

  /** @param {Request} request */
  finish(request) {
    if (request !== this.running) return;
    this.running = null;
    this.callbacks.ended(request);
  }

  /**
   * @param {Request} request
   * @param {unknown} error
   */
  failed(request, error) {
    if (request.controller.signal.aborted || request !== this.running) return;
    this.running = null;
    if (error instanceof ConnectionLost) this.callbacks.lost();
    else if (error instanceof ServerError) this.callbacks.problem(error);
    else throw error;
  }

  /**
   * @param {Request} request
   * @param {Answer} answer
   */
  remember(request, { drafts, pays, ghost }) {
    this.remembered.delete(request.key);
    this.remembered.set(request.key, { drafts, pays, ghost });
    if (this.remembered.size > REMEMBERED) {
      this.remembered.delete(/** @type {string} */ (this.remembered.keys().next().value));
    }
  }
}
