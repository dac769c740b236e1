// @ts-check
/**
 * The adapters in the tab of personal stores: the button that trains one, the progress with the curve of held-out text,
 * and the adapter's switch and strength. The server trains; this file requests the progress.
 */

import { drawSlider, finder, newElement, setText } from "../shared/dom.js";
import { getJson, postJson } from "../shared/transport.js";
import { remaining } from "../shared/wording.js";

/**
 * @typedef {{description: string, finished: boolean, better: boolean, on: boolean, strength: number, usual: number}} Adapter
 * @typedef {{store: string, again: boolean, state: "waiting" | "running" | "ended", paused: boolean, stopping: boolean,
 *            description: string, share: number, left: number | null, curve: [number, number][], message: string, failed: boolean}} Row
 */

const [TRAINS, STEPS] = [3, 4]; // the step that trains, and all; see `stepOf`
const AT_MOST = "at most 10 min left"; // the time given to it, until it has measured how fast this machine is
const EVERY = 1000; // ms between two requests for the progress
const [WIDE, HIGH, MARGIN] = [132, 34, 3]; // of the curve

export class Training {
  /** @param {import("./stores.js").StoresTab} tab */
  constructor(tab) {
    this.tab = tab;
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    this.timer = 0;
  }

  /** Take the server's list, and request it again while something is trained. @param {Row[]} rows */
  follow(rows) {
    this.rows = new Map(rows.map((row) => [row.store, row]));
    clearTimeout(this.timer);
    if (rows.some(isActive)) this.timer = setTimeout(() => this.refresh(), EVERY);
  }

  async refresh() {
    if (!this.tab.root.checkVisibility()) {
      this.timer = setTimeout(() => this.refresh(), EVERY);
      return;
    }
    const before = [...this.rows.values()].filter(isActive).map(({ store }) => store);
    try {
      this.follow((await getJson("/api/stores/trainings")).trainings);
      const ended = before.filter((store) => this.rows.get(store)?.state === "ended");
      if (ended.length) {
        await this.tab.refresh();
        this.tab.announce(ended.map((store) => `${store}: ${this.rows.get(store)?.message || "the model has learned it."}`).join(" "));
      } else this.drawAll();
    } catch {
      // The editor shows that the server cannot be reached; the next request follows.
      this.timer = setTimeout(() => this.refresh(), EVERY);
    }
  }

  /** @param {string} store */
  newPart(store) {
    const part = newElement("div", "ps-style", `
      <p class="ps-facts ps-adapter"></p>
      <div class="ps-strength">
        <label><input type="checkbox" role="switch" class="ps-use"> Write in my style</label>
        <div class="pd-option"><span><label>Strength</label><output></output></span>
          <input type="range" min="0" max="1" step="0.05"></div>
      </div>
      <div class="ps-training">
        <p class="ps-doing"></p>
        <button type="button" class="ps-stop">Stop</button>
        <progress max="1"></progress>
        <div class="ps-curve"></div>
      </div>
      <p class="ps-ended"></p>
      <div class="ps-begin"><button type="button" class="ps-train"></button> <span class="ps-facts"></span></div>`);
    const find = finder(part);
    const [use, strength] = /** @type {HTMLInputElement[]} */ ([find(".ps-use"), find("input[type=range]")]);
    use.setAttribute("aria-label", `${store}: write in my style`);
    strength.setAttribute("aria-label", `${store}: strength`);
    find("progress").setAttribute("aria-label", `${store}: learning`);
    const place = () => /** @type {HTMLElement} */ (part.closest(".ps-store"));
    const post = (/** @type {string} */ action, /** @type {object} */ body) =>
      this.tab.act(async () => {
        try {
          await postJson(`/api/stores/${action}`, { store, ...body });
        } finally {
          await this.tab.refresh();
        }
      }, place());
    find(".ps-train").addEventListener("click", () => post("train", {}));
    find(".ps-stop").addEventListener("click", () => post("stop-training", {}));
    use.addEventListener("change", () => post("switch-adapter", { on: use.checked }));
    strength.addEventListener("input", () => drawStrength(strength, Number(strength.value)));
    strength.addEventListener("change", () => {
      const chosen = Number(strength.value);
      post("strength", { strength: chosen === Number(strength.dataset.usual) ? null : chosen });
    });
    return part;
  }

  drawAll() {
    for (const store of this.tab.stores) {
      const item = this.tab.root.querySelector(`.ps-store[data-store="${CSS.escape(store.store)}"]`);
      const part = /** @type {HTMLElement | null} */ (item?.querySelector(".ps-style") ?? null);
      if (part) this.draw(part, store);
    }
  }

  /** @param {HTMLElement} part @param {{store: string, enabled: boolean, adapter: Adapter | null}} store */
  draw(part, { store, enabled, adapter }) {
    const find = finder(part);
    const row = this.rows.get(store);
    const active = row !== undefined && isActive(row);
    setText(find(".ps-adapter"), adapter?.description ?? "");
    find(".ps-adapter").hidden = !adapter;
    find(".ps-strength").hidden = !adapter?.better;
    if (adapter?.better) {
      const use = /** @type {HTMLInputElement} */ (find(".ps-use"));
      const strength = /** @type {HTMLInputElement} */ (find("input[type=range]"));
      use.checked = adapter.on;
      use.disabled = !enabled;
      strength.disabled = !adapter.on || !enabled;
      strength.dataset.usual = String(adapter.usual);
      if (!strength.matches(":active")) drawStrength(strength, adapter.strength);
    }
    find(".ps-training").hidden = !active;
    find(".ps-begin").hidden = active;
    if (row && active) {
      setText(find(".ps-doing"), doing(row));
      // Only the training reports a share; in the other steps, and while it waits, the bar moves without one.
      const progress = find("progress");
      if (stepOf(row) === TRAINS && row.share) progress.setAttribute("value", String(row.share));
      else progress.removeAttribute("value");
      /** @type {HTMLButtonElement} */ (find(".ps-stop")).disabled = row.stopping;
      drawCurve(find(".ps-curve"), row.curve);
    }
    const ended = row && !active ? row.message : "";
    setText(find(".ps-ended"), ended && row?.again ? `Text was forgotten, so the model began to learn again. ${ended}` : ended);
    find(".ps-ended").hidden = !ended;
    find(".ps-ended").classList.toggle("ps-problem", row?.failed ?? false);
    setText(find(".ps-train"), !adapter ? "Learn my style" : adapter.finished ? "Learn what is new" : "Go on learning");
    const hint = "The model adapts to this collection's text, here on this machine: ten minutes at most, paused while you type.";
    setText(find(".ps-begin .ps-facts"), adapter ? "" : hint);
  }
}

/** @param {Row} row */
function isActive(row) {
  return row.state !== "ended";
}

/** @param {Row} row */
function doing({ state, paused, stopping, again, description, share, left }) {
  const begin = again ? "Text was forgotten: learning again from what is left. " : "";
  if (stopping) return `${begin}Stopping …`;
  if (state === "waiting") return `${begin}Step 1 of ${STEPS}: begins in a moment, ${AT_MOST}`;
  if (paused) return `${begin}Paused while you type`;
  const step = stepOf({ description, share });
  const part = step === TRAINS && share > 0 && share < 1 ? `, ${Math.round(100 * share)}%` : "";
  const unknown = step === STEPS ? "almost done" : AT_MOST;
  const time = left === null ? unknown : `${remaining(left)} left`;
  return `${begin}Step ${step} of ${STEPS}: ${description}${part}, ${time}`;
}

/**
 * The number of a training's step: it loads the model and text, judges the model, trains, judges the adapter.
 * @param {{description: string, share: number}} row
 */
function stepOf({ description, share }) {
  if (description === "Training") return TRAINS;
  if (share >= 1) return STEPS;
  return description.startsWith("Evaluating") ? 2 : 1;
}

/** @param {HTMLInputElement} slider @param {number} strength */
function drawStrength(slider, strength) {
  const usual = Number(slider.dataset.usual) === strength;
  drawSlider(slider, strength, `${strength.toFixed(2)}${usual ? ", as measured" : ""}`);
}

/**
 * Draw the probability of the held-out text during the training as a line, with a sentence.
 * @param {HTMLElement} box
 * @param {[number, number][]} curve tokens trained, mean ln p
 */
function drawCurve(box, curve) {
  box.hidden = curve.length < 2;
  if (box.hidden) return;
  const [most, values] = [Math.max(curve[curve.length - 1][0], 1), curve.map(([, value]) => value)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const points = curve.map(([tokens, value]) => [
    MARGIN + (tokens / most) * (WIDE - 2 * MARGIN),
    HIGH - MARGIN - ((value - low) / (high - low || 1)) * (HIGH - 2 * MARGIN),
  ]);
  const path = points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");
  const [x, y] = points[points.length - 1];
  const gain = Math.expm1(values[values.length - 1] - values[0]);
  const description = `Your newest text, which it does not read: ${Math.abs(Math.round(100 * gain))}% ${gain < 0 ? "less" : "more"} probable per word or part of a word so far`;
  box.innerHTML =
    `<svg viewBox="0 0 ${WIDE} ${HIGH}" width="${WIDE}" height="${HIGH}" aria-hidden="true"><polyline points="${path}"/>` +
    `<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="2.5"/></svg><span class="ps-facts">${description}</span>`;
}
