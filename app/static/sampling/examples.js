// @ts-check
/**
 * An example of each style: how the present text could go on. The model computes one draft per style, one after the
 * other, after a pause in typing and only while the styles are visible. It reads the end of the text alone.
 */

import { setText } from "../shared/dom.js";
import { Timers } from "../shared/timers.js";
import { ConnectionLost, ServerError, leaveAs, freshId, streamDrafts } from "../shared/transport.js";

const AFTER = 1000; // ms without a key or a new setting until the examples are computed
const READ = 600; // characters of the text that the model reads for them, so that they delay no later key for long
const LENGTH = 14; // tokens of an example

export class Examples {
  /**
   * @param {HTMLElement} box the styles; each has an element `.sm-example` with its name
   * @param {import("./sampling.js").Sampling} panel
   */
  constructor(box, panel) {
    this.panel = panel;
    this.places = [.../** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll(".sm-example"))];
    this.timers = new Timers();
    /** The server's session for them, which the tab's own drafts do not share. */
    this.tab = freshId();
    this.n = 0;
    /** @type {AbortController | null} */
    this.running = null;
    /** The text and the settings of the examples that are shown. */
    this.shownFor = "";
    const { root } = panel;
    root.addEventListener("pd-text", () => this.later());
    for (const event of ["pd-settled", "pd-cleared"]) root.addEventListener(event, () => this.running || this.later());
    root.addEventListener("pd-dropped", () => this.forget());
    addEventListener("pagehide", () => leaveAs(this.tab));
    addEventListener("visibilitychange", () => this.later());
  }

  /** Stop, and compute them after a pause. */
  later() {
    this.running?.abort();
    this.running = null;
    this.timers.stop("compute");
    if (this.visible()) this.timers.later("compute", AFTER, () => this.compute());
  }

  /** Forget what they were computed from, here and in the server. */
  forget() {
    leaveAs(this.tab);
    this.tab = freshId();
    this.shownFor = "";
    for (const place of this.places) setText(place, "");
    this.later();
  }

  visible() {
    const { panel } = this;
    return panel.isOpen() && !document.hidden && panel.root.dataset.tab !== "stores";
  }

  async compute() {
    const { panel } = this;
    const before = panel.page.before()?.slice(-READ).toWellFormed();
    const shownFor = JSON.stringify([before, panel.options.values]);
    if (shownFor === this.shownFor) return;
    if (panel.page.requests().running) return this.later(); // the writer's own drafts come first
    for (const place of this.places) setText(place, "");
    this.shownFor = shownFor;
    if (!before) return;
    const running = (this.running = new AbortController());
    try {
      for (const place of this.places) await this.draw(place, before, running.signal);
    } catch (error) {
      this.shownFor = "";
      if (!(running.signal.aborted || error instanceof ServerError || error instanceof ConnectionLost)) throw error;
    }
    if (this.running === running) this.running = null;
  }

  /**
   * @param {HTMLElement} place
   * @param {string} before
   * @param {AbortSignal} signal
   */
  async draw(place, before, signal) {
    const { panel } = this;
    const preset = panel.presets.known.find(({ name }) => name === place.dataset.style);
    if (!preset) return;
    const { rule, values, mode, mode_values, temperature } = preset;
    const sampling = { rule, values, mode, mode_values, seed: panel.choice.seed };
    const settings = { ...panel.options.values, k: 1, length: LENGTH, temperature, sampling };
    await streamDrafts({ tab: this.tab, n: ++this.n, before, settings, grow: true }, (line) => {
      if (line.type === "drafts" && !signal.aborted) setText(place, shown(before, line.drafts[0]?.text ?? ""));
    }, signal);
  }
}

/**
 * A draft up to the end of its sentence, after the last words of the text.
 * @param {string} before
 * @param {string} draft
 */
function shown(before, draft) {
  const sentence = draft.match(/^.*?[.!?]["'”’)]*(?=\s|$)/s)?.[0];
  const begun = before.slice(-24).match(/(?:^|\s)(\S+\s*)$/)?.[1] ?? "";
  return draft ? `… ${begun.trimStart()}${sentence ?? `${draft.trimEnd()} …`}` : "";
}
