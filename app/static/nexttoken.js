// @ts-check
/**
 * The part of the sampling panel that shows what the rules do to the next token: which drawing is in sight, and asking
 * the server for it, one request at a time, from logits that the server has. The drawings themselves are in chart.js.
 */

import { counted, drawBars, drawMap, drawMultiples, drawSweep, share, tokens, write } from "./chart.js";
import { ConnectionLost, ServerError, TAB, postJson } from "./transport.js";

const SWEEP_AFTER = 150; // ms without a change until the temperatures are swept
const SAY_AFTER = 700; // ms without a change until a screen reader is told
const EMPTY_AFTER = 300; // ms without drafts until the drawings go
const DRAWINGS = [["bars", "Tokens"], ["rules", "All rules"], ["sweep", "Temperatures"], ["map", "Map"]];

export class NextToken {
  /**
   * @param {HTMLElement} box
   * @param {import("./sampling.js").Sampling} panel
   */
  constructor(box, panel) {
    this.box = box;
    this.panel = panel;
    this.editor = panel.editor;
    /** The drawing in sight. */
    this.shown = "bars";
    /** @type {import("./chart.js").View | null} */
    this.view = null;
    this.asking = false;
    this.again = false;
    /** @type {Record<string, number | undefined>} */
    this.timers = {};
    /**
     * What tests and benchmarks read; ms from asking for a chart to having drawn it.
     * @type {{views: number, sweeps: number, viewMs: number[]}}
     */
    this.counters = { views: 0, sweeps: 0, viewMs: [] };

    box.innerHTML = `
      <h3 id="sm-see-title">The next word</h3>
      <p class="sm-summary"></p>
      <p class="sm-geometry" hidden></p>
      <div class="sm-tabs" role="tablist" aria-label="Drawings">
        ${DRAWINGS.map(([name, title]) => `<button type="button" role="tab" id="sm-tab-${name}" data-shown="${name}" aria-controls="sm-${name}">${title}</button>`).join("")}
      </div>
      ${DRAWINGS.map(([name]) => `<div class="sm-drawing" id="sm-${name}" role="tabpanel" aria-labelledby="sm-tab-${name}" hidden></div>`).join("")}
      <p class="sm-live pd-unseen" aria-live="polite"></p>`;
    for (const tab of this.tabs()) tab.addEventListener("click", () => this.show(tab.dataset.shown ?? ""));
    this.find(".sm-tabs").addEventListener("keydown", (event) => this.moveTab(event));
    for (const event of ["pd-drafts", "pd-along", "pd-cleared"]) {
      panel.root.addEventListener(event, () => this.positionChanged(event));
    }
    addEventListener("visibilitychange", () => this.refresh());
  }

  /** @type {<T extends HTMLElement>(selector: string) => T} */
  find(selector) {
    return /** @type {any} */ (this.box.querySelector(selector));
  }

  get rule() {
    return this.panel.choice.rule;
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
    if (!this.panel.advanced || (this.shown === "map" && this.rule !== "top-w")) this.shown = "bars";
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

  // ---------------------------------------------------------------- asking

  visible() {
    return this.panel.isOpen() && !document.hidden && this.panel.root.dataset.tab !== "stores";
  }

  /** @param {string} event of the editor; see `Editor.tell` */
  positionChanged(event) {
    if (!this.visible()) return;
    if (event === "pd-cleared") {
      // A key clears and asks anew at once: only what stays empty is drawn so.
      this.later("empty", EMPTY_AFTER, () => {
        if (this.editor.before() === null) this.drawNothing();
      });
    } else if (event === "pd-along") {
      // The drafts serve this position too, but the server has not seen it: now that somebody looks, it shall.
      this.editor.ask({ keep: true });
    } else if (!this.view || this.seenBefore !== this.editor.request?.before) {
      this.refresh(); // other settings alone, at the same place, change nothing that `changed` has not asked for
    }
  }

  /** Ask for what is in sight; while an answer is under way, once more after it. */
  async refresh() {
    if (!this.visible()) return;
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    do {
      this.again = false;
      const began = performance.now();
      await this.look();
      this.counters.viewMs.push(performance.now() - began);
    } while (this.again && this.visible());
    this.asking = false;
  }

  async look() {
    if (this.editor.before() === null) {
      this.drawNothing();
      return;
    }
    try {
      const { choice, options } = this.panel;
      const rules = Object.fromEntries(
        [...choice.rules.keys()].filter((name) => name !== "none" || this.rule === "none").map((name) => [name, choice.values[name]]),
      );
      this.counters.views++;
      const request = { tab: TAB, temperature: Number(options.temperature.value), rules, map: this.shown === "map" };
      const view = await postJson("/api/view", request);
      for (const one of view.choices) one.title = choice.rules.get(one.rule)?.title; // as this panel writes it
      this.view = view;
      // Where the newest request had not reached the server, this may still be the place before it.
      const { request: running, answered } = this.editor;
      this.seenBefore = [running, answered].find((one) => one?.n === this.view?.n)?.before;
      this.draw();
      if (this.shown === "sweep") this.later("sweep", SWEEP_AFTER, () => this.sweep(rules));
    } catch (error) {
      if (error instanceof ServerError) this.missing(error);
      else if (!(error instanceof ConnectionLost)) throw error; // the editor tells about a lost connection
    }
  }

  /**
   * The server knows no position of this tab: it was started anew, or there was no room. Drafts make one.
   * @param {ServerError} error
   */
  missing(error) {
    this.drawNothing(`${error.message} ${error.fix}`.trim());
    if (!this.asked) this.editor.ask({ keep: true });
    this.asked = true;
  }

  /** @param {Record<string, any>} rules */
  async sweep(rules) {
    if (!this.visible() || this.shown !== "sweep") return;
    this.counters.sweeps++;
    try {
      const found = await postJson("/api/sweep", { tab: TAB, rules });
      const titles = Object.fromEntries([...this.panel.choice.rules.values()].map((rule) => [rule.name, rule.title]));
      const temperature = Number(this.panel.options.temperature.value);
      drawSweep(this.find("#sm-sweep"), found, { rule: this.rule, temperature, titles, possible: this.view?.possible ?? 1 });
    } catch (error) {
      if (!(error instanceof ServerError || error instanceof ConnectionLost)) throw error;
    }
  }

  // ---------------------------------------------------------------- drawing

  draw() {
    const { view } = this;
    if (!view) return;
    this.asked = false;
    const chosen = view.choices.find((choice) => choice.rule === this.rule) ?? view.choices[0];
    this.box.classList.remove("sm-empty");
    const summary = this.find(".sm-summary");
    summary.innerHTML =
      `<b>${tokens(chosen.count)}</b> of ${counted(view.possible)} kept` +
      `<span> · <b>${share(chosen.mass)}</b> of the probability · ` +
      `entropy <b>${chosen.entropy.toFixed(2)}</b> of ${view.entropy.toFixed(2)} nats</span>`;
    const geometry = this.find(".sm-geometry");
    geometry.hidden = this.rule !== "top-w" || !view.top_w;
    if (view.top_w) write(geometry, geometrySays(view.top_w));
    if (this.shown === "bars") drawBars(this.find("#sm-bars"), view, chosen);
    if (this.shown === "rules") drawMultiples(this.find("#sm-rules"), view, this.rule, (rule) => this.panel.choose(rule));
    if (this.shown === "map" && view.map) drawMap(this.find("#sm-map"), view.map);
    this.later("say", SAY_AFTER, () => {
      if (this.panel.box.contains(document.activeElement)) write(this.find(".sm-live"), summary.textContent ?? "");
    });
  }

  /** @param {string} why */
  drawNothing(why = "Start writing, and the words that may come next appear here.") {
    this.view = null;
    this.box.classList.add("sm-empty");
    write(this.find(".sm-summary"), why);
    this.find(".sm-geometry").hidden = true;
    for (const [name] of DRAWINGS) this.find(`#sm-${name}`).replaceChildren();
  }

  /**
   * @param {string} name
   * @param {number} ms
   * @param {() => void} action
   */
  later(name, ms, action) {
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(action, ms);
  }
}

/** @param {{gained: number, lost: number}} moved */
function geometrySays({ gained, lost }) {
  if (!gained && !lost) return "Distances between tokens made no difference here.";
  const parts = [gained ? `${gained} in` : "", lost ? `${lost} out` : ""].filter(Boolean);
  return `Distances between tokens changed the choice here: ${parts.join(", ")}.`;
}
