// @ts-check
/**
 * The larger models in the choice of the model: what suits this computer, with one button each that downloads it, stops
 * and goes on. The server downloads, in a process of its own; this file requests how far it is.
 */

import { newElement, part, setText } from "./dom.js";
import { Timers } from "./timers.js";
import { ServerError, failureOf, getJson, postJson } from "./transport.js";
import { aKey, factsOf, messageOf, plural, remaining, size } from "./wording.js";

/**
 * @typedef {{name: string, title: string, bytes: number, why: string, suits: boolean, best: boolean, ms: number | null,
 *            path: string, come: number}} Recommended
 * @typedef {{name: string, running: boolean, stage: string, come: number, bytes: number, path: string, message: string}} State
 * `bytes` and `ms` are those of the model that drafts.
 * @typedef {{host: string, recommended: Recommended[], serving: string, bytes: number, ms: number | null, download: State | null}} Larger
 */

const EVERY = 500; // ms between two requests for the progress
const AGAIN = 700; // ms between two requests for the speed of this computer
const TRIES = 20;
const SETTLED = 4000; // ms of a download after which the rest of it is estimated

/**
 * Request the models, once it is known how fast this computer is, which takes a second or two the first time.
 * @param {() => void} waiting called until then
 * @returns {Promise<Larger>}
 */
export async function getLarger(waiting = () => {}) {
  for (let tries = 0; ; tries++) {
    const { measuring, ...larger } = await getJson("/api/models/recommended");
    if (!measuring || tries === TRIES) return larger;
    waiting();
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
  }
}

export class Downloads {
  /**
   * @param {HTMLElement} section
   * @param {{use: (path: string, title: string) => void, ended: (title: string) => void}} callbacks `ended`: a file is complete
   */
  constructor(section, callbacks) {
    this.section = section;
    this.callbacks = callbacks;
    this.timers = new Timers();
    this.said = part(section, ".md-said");
    this.told = part(section, ".md-told");
    /** @type {Larger | null} */
    this.larger = null;
    /** Rows by the name of their model. @type {Map<string, HTMLElement>} */
    this.rows = new Map();
    /** How often the models were requested: older answers are dropped. */
    this.shown = 0;
    /** When the running download was seen first, and how much had come. @type {{at: number, come: number} | null} */
    this.since = null;
  }

  /** Request the models, and show them. */
  async show() {
    const shown = ++this.shown;
    await this.attempt(async () => {
      const larger = await getLarger(() => {
        if (shown !== this.shown) return;
        this.section.hidden = false;
        setText(this.section.querySelector(".md-about"), "Measuring how fast this computer is …");
      });
      if (shown !== this.shown) return;
      this.larger = larger;
      this.list();
      this.draw();
      if (this.larger.download?.running) this.later();
    });
  }

  /** Make the rows: of larger models that suit and are not among those above already, and of the latest download. */
  list() {
    if (!this.larger) return;
    const { recommended, download, serving, ms, host } = this.larger;
    const present = this.larger.bytes;
    const mine = (/** @type {Recommended} */ { name }) => name === download?.name;
    const larger = recommended.filter((each) => each.path !== serving && (mine(each) || each.bytes > present));
    const suitable = larger.filter((each) => mine(each) || each.suits);
    const offered = suitable.filter((each) => mine(each) || !each.path);
    const first = offered.find(({ best }) => best) ?? offered[0];
    const others = offered.filter((each) => each !== first);
    const focused = [...this.rows].find(([, row]) => row.contains(document.activeElement))?.[0] ?? "";
    this.rows = new Map(offered.map((each) => [each.name, this.newRow(each, each === first)]));
    const rows = (/** @type {Recommended[]} */ models) => models.map(({ name }) => /** @type {HTMLElement} */ (this.rows.get(name)));
    this.section.querySelector(".md-best")?.replaceChildren(...rows(first ? [first] : []));
    this.section.querySelector(".md-others ul")?.replaceChildren(...rows(others));
    const details = /** @type {HTMLDetailsElement} */ (this.section.querySelector(".md-others"));
    details.hidden = !others.length;
    if (others.some(mine)) details.open = true;
    setText(details.querySelector("summary"), `${plural(others.length, "other model")} for this computer`);
    const now = ms === null ? "" : ` The present one takes ${aKey(ms)}.`;
    setText(this.section.querySelector(".md-about"), suitable.length
      ? `A larger model makes fewer mistakes, and its drafts come a little later.${now}`
      : "None of the larger models that Polydraft knows suits this computer: they need more memory, or more time for a key.");
    setText(this.section.querySelector(".md-from"), first
      ? `A click on Download connects to ${host} and gets the file. Nothing that you write is sent.`
      : "");
    this.section.hidden = !larger.length || (suitable.length > 0 && !first);
    this.rows.get(focused)?.querySelector("button")?.focus();
  }

  /** @param {Recommended} model @param {boolean} first */
  newRow(model, first) {
    const facts = factsOf(size(model.bytes), model.ms !== null && aKey(model.ms));
    const row = newElement("li", "", `<span><b></b> <small class="md-facts"></small></span>
      <button type="button" class="md-load"></button> <small class="md-why"></small> <progress hidden></progress> <small class="md-state"></small>`,
      { b: model.title, ".md-facts": facts, ".md-why": model.why });
    row.querySelector("progress")?.setAttribute("aria-label", `Download of ${model.title}`);
    row.querySelector("button")?.addEventListener("click", () => this.click(model));
    row.classList.toggle("md-first", first);
    row.title = model.name;
    return row;
  }

  draw() {
    if (!this.larger) return;
    const { recommended, download, host } = this.larger;
    if (!download?.running) this.since = null;
    else this.since ??= { at: performance.now(), come: download.come };
    for (const model of recommended) {
      const row = this.rows.get(model.name);
      if (!row) continue;
      const mine = download?.name === model.name ? download : null;
      const running = mine?.running ?? false;
      const come = mine?.come || model.come;
      const button = part(row, "button");
      const action = running ? "Stop" : mine?.path || model.path ? "Use it" : come ? "Resume" : "Download";
      setText(button, action);
      button.classList.toggle("pd-main", action === "Use it" || (row.classList.contains("md-first") && !running));
      button.setAttribute("aria-label", `${action === "Use it" ? "Use" : action} ${model.title}`);
      button.disabled = Boolean(download?.running) && !running && action !== "Use it";
      const bar = part(row, "progress");
      bar.hidden = !running;
      if (mine?.stage === "coming" || mine?.stage === "waiting") bar.value = mine.come / mine.bytes;
      else bar.removeAttribute("value");
      const state = row.querySelector(".md-state");
      state?.classList.toggle("md-failed", Boolean(mine?.message));
      setText(state, running && mine ? this.doing(mine, host) : mine?.message || rest(model, mine, come));
    }
  }

  /**
   * What the download does, in words.
   * @param {State} state
   * @param {string} host
   */
  doing({ stage, come, bytes }, host) {
    if (stage === "asking") return `Asking ${host} …`;
    if (stage === "waiting") return "The connection was interrupted. Trying again …";
    if (stage !== "coming") return "Comparing the file with the original …";
    const { at, come: first } = this.since ?? { at: 0, come };
    const passed = performance.now() - at;
    const left = come > first && passed > SETTLED ? ` · about ${remaining(((bytes - come) * passed) / (come - first) / 1000)} left` : "";
    return `${size(come)} of ${size(bytes)}${left}`;
  }

  /** @param {Recommended} model */
  async click(model) {
    const { larger } = this;
    const mine = larger?.download?.name === model.name ? larger.download : null;
    const path = mine?.path || model.path;
    if (path && !mine?.running) return this.callbacks.use(path, model.title);
    setText(this.said, "");
    await this.attempt(async () => {
      const state = mine?.running
        ? await postJson("/api/models/stop-download", {})
        : await postJson("/api/models/download", { name: model.name });
      this.take(state);
    });
  }

  later() {
    this.timers.later("progress", EVERY, async () => {
      const reached = await this.attempt(async () => this.take(await getJson("/api/models/download")));
      if (!reached) this.later();
    });
  }

  /** Take the server's answer, and follow the download while it runs. @param {State | null} state */
  take(state) {
    if (!this.larger) return;
    const before = this.larger.download;
    this.larger.download = state;
    this.draw();
    if (state?.running) this.later();
    else {
      this.timers.stop("progress");
      const model = this.larger.recommended.find(({ name }) => name === state?.name);
      if (!model || !state || !before?.running) return;
      model.come = state.come;
      setText(this.told, state.message || (state.path ? `${model.title} is on this computer.` : "Stopped."));
      if (state.path) this.callbacks.ended(model.title);
    }
  }

  /**
   * Do something with the server; an error becomes a sentence.
   * @param {() => Promise<void>} action
   * @returns {Promise<boolean>} whether the server answered
   */
  async attempt(action) {
    const failed = await failureOf(action);
    if (failed) setText(this.said, messageOf(failed));
    return !failed || failed instanceof ServerError;
  }
}

/**
 * What stands below a model that is not being downloaded.
 * @param {Recommended} model
 * @param {State | null} mine its download
 * @param {number} come
 */
function rest(model, mine, come) {
  if (mine?.path || model.path) return "On this computer.";
  return come ? `${size(come)} of ${size(mine?.bytes || model.bytes)} are on this computer.` : "";
}
