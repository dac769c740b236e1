// @ts-check
/**
 * Asking for drafts. One request is under way at most: a newer one stops it. Finished answers are remembered, for
 * going back by backspace and undo.
 */

import { cropped, grouped } from "./drafting.js";
import { ConnectionLost, ServerError, streamDrafts } from "./transport.js";

/** @typedef {import("./drafting.js").Draft} Draft */
/** @typedef {import("./drafting.js").DraftSet} DraftSet */

/**
 * A request under way. `quiet`: what is shown stays until the answer has something longer to say.
 * `steady`: drafts whose ends stay in sight until the answer has grown as long: settings change, the text does not.
 * @typedef {{n: number, before: string, key: string, set: DraftSet, quiet: boolean, pressed: number | null,
 *            controller: AbortController, forSettings: boolean, steady: Draft[], told: boolean}} Request
 */

const REMEMBERED = 16; // finished draft sets kept

export class Requests {
  /**
   * @param {{settings: () => object, drafts: (request: Request, line: any, first: boolean) => void,
   *          figures: (line: any) => void, problem: (problem: ServerError | any) => void, lost: () => void,
   *          ended: (request: Request) => void}} told what the answers are told to
   */
  constructor(told) {
    this.told = told;
    /** @type {Request | null} */
    this.running = null;
    this.n = 0;
    /** Finished answers by the text sent. @type {Map<string, Draft[]>} */
    this.remembered = new Map();
  }

  /**
   * Ask the server for drafts after `before`.
   * @param {string} before
   * @param {{quiet: boolean, pressed: number | null, forSettings: boolean, steady: Draft[]}} how
   */
  send(before, how) {
    this.abort();
    const controller = new AbortController();
    const window = cropped(before);
    /** @type {Request} */
    const request = {
      ...how, n: ++this.n, before, key: window, controller, told: false,
      set: { before, drafts: [], done: false },
    };
    this.running = request;
    streamDrafts({ n: request.n, before: window, settings: this.told.settings() }, (line) => this.receive(request, line), controller.signal)
      .then(() => this.finish(request))
      .catch((error) => this.failed(request, error));
  }

  abort() {
    this.running?.controller.abort();
    this.running = null;
  }

  /** @param {string} before */
  recall(before) {
    return this.remembered.get(cropped(before));
  }

  /**
   * One line of the answer.
   * @param {Request} request
   * @param {any} line
   */
  receive(request, line) {
    if (request !== this.running || line.n !== request.n) return;
    if (line.type === "error") this.told.problem(line);
    else if (line.type === "stats") this.told.figures(line);
    else if (line.type === "drafts") {
      const { set } = request;
      const first = set.drafts.length === 0;
      set.done = line.done;
      set.drafts = inOrder(set.drafts, line.drafts, line.done);
      if (!line.done) set.drafts = set.drafts.map((draft) => withKnownEnd(draft, request.steady));
      if (line.done) this.remember(request);
      this.told.drafts(request, line, first);
    }
  }

  /** @param {Request} request */
  finish(request) {
    if (request !== this.running) return;
    this.running = null;
    this.told.ended(request);
  }

  /**
   * @param {Request} request
   * @param {unknown} error
   */
  failed(request, error) {
    if (request.controller.signal.aborted || request !== this.running) return;
    this.running = null;
    if (error instanceof ConnectionLost) this.told.lost();
    else if (error instanceof ServerError) this.told.problem(error);
    else throw error;
  }

  /** @param {Request} request */
  remember(request) {
    this.remembered.set(request.key, request.set.drafts);
    if (this.remembered.size > REMEMBERED) {
      this.remembered.delete(/** @type {string} */ (this.remembered.keys().next().value));
    }
  }
}

/**
 * The new state of the drafts in the order in which the reader first saw them. Only a finished answer may move rows,
 * and only to bring those together that share a beginning.
 * @param {Draft[]} shown
 * @param {Draft[]} fresh best first
 * @param {boolean} done
 */
function inOrder(shown, fresh, done) {
  const place = new Map(shown.map((draft, i) => [draft.id, i]));
  const ordered = [...fresh].sort((a, b) => (place.get(a.id) ?? Infinity) - (place.get(b.id) ?? Infinity) || 0);
  return done ? grouped(ordered) : ordered;
}

/**
 * The draft with the end that one of `known` has and it has not yet.
 * @param {Draft} draft
 * @param {Draft[]} known
 */
function withKnownEnd(draft, known) {
  const longer = known.find(({ text }) => text.length > draft.text.length && text.startsWith(draft.text));
  return longer ? { ...draft, text: longer.text } : draft;
}
