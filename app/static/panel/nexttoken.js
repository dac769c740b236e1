// @ts-check
/**
 * The part of the panel that shows the effect of the rules on the next token: selects a drawing and requests its data,
 * one request at a time. The server computes it from the logits of the last drafts. chart.js draws.
 */

import { counted, drawBars, drawMap, drawMultiples, drawSweep, share } from "./chart.js";
import { look, startWith } from "../editor/commands.js";
import { finder, newElement, on, setText } from "../shared/dom.js";
import { place } from "./place.js";
import { Timers } from "../shared/timers.js";
import { ServerError, TAB, failureOf, postJson } from "../shared/transport.js";
import { messageOf, plural } from "../shared/wording.js";

const SWEEP_AFTER = 150; // ms without a change until the sweep over temperatures is requested
const ANNOUNCE_AFTER = 700; // ms without a change until the summary is announced to screen readers
const FOLLOW_AFTER = 200; // ms without a key until the drawings follow the caret
const STILL_AFTER = 2000; // ms without a change until the tokens that it added or dropped are no longer marked
const EMPTY_AFTER = 300; // ms without drafts until the drawings follow the caret, or are removed
const WIDE = { wide: 940, high: 500 }; // the wide view of the temperatures
const DRAWINGS = [["bars", "Tokens"], ["rules", "All rules"], ["sweep", "Temperatures"], ["map", "Map"]];
const SWEEP = `<div class="sm-sweep-here"></div><button type="button" class="sm-widen">Wide view</button>`;
const MARKUP = `
  <h2 id="sm-see-title">The next word</h2>
  <p class="sm-after" hidden><span></span> <button type="button">Back to the caret</button></p>
  <p class="sm-summary"></p>
  <p class="sm-geometry" hidden></p>
  <div class="sm-tabs" role="tablist" aria-label="Drawings">
    ${DRAWINGS.map(([name, title]) => `<button type="button" role="tab" id="sm-tab-${name}" data-shown="${name}" aria-controls="sm-${name}">${title}</button>`).join("")}
  </div>
  ${DRAWINGS.map(([name]) => `<div class="sm-drawing" id="sm-${name}" role="tabpanel" aria-labelledby="sm-tab-${name}" hidden>${name === "sweep" ? SWEEP : ""}</div>`).join("")}
  <dialog class="sm-wide" aria-labelledby="sm-wide-title"><h2 id="sm-wide-title">Temperatures</h2>
    <div></div><form method="dialog"><button>Close</button></form></dialog>
  <p class="sm-live pd-unseen" aria-live="polite"></p>`;

export class NextToken {
  /** @param {import("./panel.js").Panel} panel */
  constructor(panel) {
    /** Stands in a component of the panel, as soon as Gradio has made it. */
    this.box = newElement("section", "sm-see");
    this.box.setAttribute("aria-labelledby", "sm-see-title");
    const box = this.box;
    this.find = finder(box);
    this.panel = panel;
    this.drafts = panel.editor.drafts;
    /** The name of the visible drawing. */
    this.shown = "bars";
    /** @type {import("./chart.js").View | null} */
    this.view = null;
    /** Whether a request is under way, and whether another must follow it. */
    this.loading = false;
    this.again = false;
    /** Where the drawn token stands: after this part of a draft. "" for the caret. */
    this.after = "";
    /** The tokens that the rule kept before the present movement of a slider, and where. @type {Set<number>} */
    this.before = new Set();
    this.beforeAt = "";
    this.timers = new Timers();
    /** Draws the latest sweep in the wide view. */
    this.drawWide = () => {};
    /**
     * For tests and benchmarks; `viewMs`: ms from requesting a view to having drawn it.
     * @type {{views: number, sweeps: number, viewMs: number[]}}
     */
    this.counters = { views: 0, sweeps: 0, viewMs: [] };

    box.innerHTML = MARKUP;
    this.listen();
  }

  listen() {
    const { box, panel } = this;
    const dialog = /** @type {HTMLDialogElement} */ (this.find(".sm-wide"));
    this.find(".sm-widen").addEventListener("click", () => {
      this.drawWide();
      dialog.showModal();
    });
    dialog.addEventListener("close", () => dialog.querySelector("div")?.replaceChildren());
    for (const tab of this.tabs()) tab.addEventListener("click", () => this.show(tab.dataset.shown ?? ""));
    this.find(".sm-tabs").addEventListener("keydown", (event) => this.moveTab(event));
    this.find(".sm-after button").addEventListener("click", () => this.showAfter(""));
    panel.root.addEventListener("pd-text", () => {
      this.after = "";
      if (this.timers.running.follow) this.follow();
    });
    on(panel.root, "pd-word", (part) => this.showAfter(part));
    for (const event of ["pd-drafts", "pd-along", "pd-cleared"]) {
      panel.root.addEventListener(event, () => this.positionChanged(event));
    }
    addEventListener("visibilitychange", () => this.refresh());
    place("#pd-next .pd-part", box).then(() => {
      this.render();
      this.refresh();
    });
  }

  get rule() {
    return this.panel.setting.rule;
  }

  // ---------------------------------------------------------------- which drawing

  tabs() {
    return /** @type {HTMLElement[]} */ ([...this.box.querySelectorAll("[role=tab]")]);
  }

  /** @param {string} name */
  show(name) {
    this.shown = name;
    this.render();
    this.refresh();
  }

  render() {
    if (this.shown === "map" && this.rule !== "top-w") this.shown = "bars";
    this.find("#sm-tab-map").hidden = this.rule !== "top-w";
    for (const tab of this.tabs()) {
      const selected = tab.dataset.shown === this.shown;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
      this.find(`#sm-${tab.dataset.shown}`).hidden = !selected;
    }
  }

  /** @param {KeyboardEvent} event */
  moveTab(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const tabs = this.tabs().filter((tab) => !tab.hidden);
    const next = tabs[(tabs.findIndex((tab) => tab.dataset.shown === this.shown) + by + tabs.length) % tabs.length];
    this.show(next.dataset.shown ?? "");
    next.focus();
  }

  /** Draw the tokens that may stand after a part of a draft. @param {string} part "" for the caret */
  showAfter(part) {
    this.after = part;
    if (part && !this.panel.open) this.panel.toggle();
    look(this.drafts, part);
  }

  // ---------------------------------------------------------------- requests

  visible() {
    const { panel } = this;
    return panel.open && this.box.isConnected && !document.hidden && panel.root.dataset.tab !== "stores";
  }

  /** @param {string} event of the page; see main.js */
  positionChanged(event) {
    if (!this.visible()) return;
    if (event === "pd-cleared") {
      // A key clears the drafts and requests new ones at once, so the drawings change only after a pause.
      this.timers.later("empty", EMPTY_AFTER, () => {
        if (this.drafts.before() === null) this.drawNothing();
        else if (!this.drafts.request && this.seenBefore !== this.drafts.before()) look(this.drafts, "");
      });
    } else if (event === "pd-along" || !this.view || this.seenBefore !== this.drafts.request?.before) {
      this.follow(); // for changed settings at the same place `Panel.changed` has requested the view
    }
  }

  /** Draw the tokens at the caret once no key came for a moment and no drafts are under way: those of a key come first. */
  follow() {
    this.timers.later("follow", FOLLOW_AFTER, () => {
      const { request, answered } = this.drafts;
      if (request) return this.follow();
      // Drafts that are still valid need no request, so the server has no logits for this position.
      if (answered?.before === `${this.drafts.before()}${this.after}`) return this.refresh();
      return look(this.drafts, this.after);
    });
  }

  /** Request and draw the visible drawing; if a request is under way, once more after it. */
  async refresh() {
    if (!this.visible()) return;
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    do {
      this.again = false;
      const began = performance.now();
      await this.load();
      this.counters.viewMs.push(performance.now() - began);
    } while (this.again && this.visible());
    this.loading = false;
  }

  async load() {
    if (this.drafts.before() === null) {
      this.drawNothing();
      return;
    }
    if (!this.drafts.answered) return; // the first answer brings the first view
    const failed = await failureOf(async () => {
      const { setting } = this.panel;
      const alone = [...setting.rules.keys()].filter((name) => name !== "none" || this.rule === "none");
      const names = new Set([...alone, this.rule]); // a chain is compared with every rule
      const rules = Object.fromEntries([...names].map((name) => [name, setting.valuesOf(name)]));
      this.counters.views++;
      const { temperature, select_at } = setting.options;
      const request = { tab: TAB, temperature, select_at, rules, map: this.shown === "map" };
      const view = await postJson("/api/view", request);
      for (const entry of view.choices) entry.title = setting.titleOf(entry.rule);
      this.view = view;
      // If the newest request has not reached the server yet, the view is of the position before it.
      const { request: running, answered } = this.drafts;
      this.seenBefore = [running, answered].find((candidate) => candidate?.n === this.view?.n)?.before;
      this.draw();
      if (this.shown === "sweep") this.timers.later("sweep", SWEEP_AFTER, () => this.sweep(rules));
    });
    if (failed instanceof ServerError) this.missing(failed); // the status line reports a lost connection
  }

  /**
   * The server has no logits for this tab: it was restarted, or has dropped them. Let it compute them once, without drafts:
   * the writer may not want any here.
   * @param {ServerError} error
   */
  missing(error) {
    this.drawNothing(messageOf(error));
    if (!this.retried && !this.drafts.request) look(this.drafts, this.after);
    this.retried = true;
  }

  /** @param {Record<string, any>} rules */
  async sweep(rules) {
    if (!this.visible() || this.shown !== "sweep") return;
    this.counters.sweeps++;
    await failureOf(async () => {
      const result = await postJson("/api/sweep", { tab: TAB, select_at: this.panel.setting.options.select_at, rules });
      const titles = Object.fromEntries(Object.keys(rules).map((rule) => [rule, this.panel.setting.titleOf(rule)]));
      const temperature = Number(this.panel.setting.options.temperature);
      const now = { rule: this.rule, temperature, titles, possible: this.view?.possible ?? 1 };
      drawSweep(this.find(".sm-sweep-here"), result, now);
      this.drawWide = () => drawSweep(this.find(".sm-wide > div"), result, now, WIDE);
      if (/** @type {HTMLDialogElement} */ (this.find(".sm-wide")).open) this.drawWide();
    });
  }

  // ---------------------------------------------------------------- drawing

  draw() {
    const { view } = this;
    if (!view) return;
    this.retried = false;
    const chosen = view.choices.find((choice) => choice.rule === this.rule) ?? view.choices[0];
    this.box.classList.remove("sm-empty");
    this.find(".sm-after").hidden = !this.after;
    setText(this.find(".sm-after span"), `after “${this.after.trim()}” of a draft`);
    const summary = this.find(".sm-summary");
    summary.innerHTML =
      `<b>${plural(chosen.count, "token")}</b> of ${counted(view.possible)} kept` +
      `<span> · <b>${share(chosen.mass)}</b> of the probability · ` +
      `entropy <b>${chosen.entropy.toFixed(2)}</b> of ${view.entropy.toFixed(2)} nats</span>`;
    const geometry = this.find(".sm-geometry");
    geometry.hidden = this.rule !== "top-w" || !view.top_w;
    if (view.top_w) setText(geometry, geometryEffect(view.top_w));
    const kept = new Set(view.tokens.filter((_, i) => chosen.kept[i]).map(({ id }) => id));
    const at = `${this.drafts.before()}${this.after}`;
    if (this.beforeAt !== at) [this.before, this.beforeAt] = [kept, at];
    this.timers.later("still", STILL_AFTER, () => {
      this.before = kept;
      if (this.view === view) this.draw();
    });
    if (this.shown === "bars") drawBars(this.find("#sm-bars"), view, chosen, this.before, (token) => startWith(this.drafts, this.after + token));
    if (this.shown === "rules") drawMultiples(this.find("#sm-rules"), view, this.rule, (rule) => this.panel.choose(rule));
    if (this.shown === "map" && view.map) drawMap(this.find("#sm-map"), view.map);
    this.timers.later("announce", ANNOUNCE_AFTER, () => {
      if (this.box.closest("#pd-panel")?.contains(document.activeElement)) setText(this.find(".sm-live"), summary.textContent ?? "");
    });
  }

  /** @param {string} why */
  drawNothing(why = nothingNext(this.panel.editor.textarea)) {
    this.view = null;
    this.box.classList.add("sm-empty");
    setText(this.find(".sm-summary"), why);
    this.find(".sm-geometry").hidden = true;
    for (const drawing of ["#sm-bars", "#sm-rules", ".sm-sweep-here", "#sm-map"]) this.find(drawing).replaceChildren();
  }
}

/** @param {{gained: number, lost: number}} moved */
function geometryEffect({ gained, lost }) {
  if (!gained && !lost) return "Distances between tokens made no difference here.";
  const parts = [gained ? `${gained} in` : "", lost ? `${lost} out` : ""].filter(Boolean);
  return `Distances between tokens changed the choice here: ${parts.join(", ")}.`;
}

/** Why there is no next word at the caret. @param {HTMLTextAreaElement} textarea */
function nothingNext({ value, selectionStart, selectionEnd, readOnly }) {
  if (readOnly) return "This text is too long to be edited, so it has no drafts.";
  if (!value.trim()) return "Start writing, and the words that may come next appear here.";
  if (selectionStart !== selectionEnd) return "Text is selected. Put the caret behind a word, and its next words appear here.";
  if (!value.slice(0, selectionStart).trim()) return "Put the caret behind a word, and its next words appear here.";
  return "Drafts are paused. Bring them back, and the next words appear here.";
}
