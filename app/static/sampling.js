// @ts-check
/**
 * The sampling panel: which rule crops the model's distributions, its controls, how drafts are made, presets and
 * links; and what all of it does to the next token. Rules, controls and their ranges come from the server's catalogue.
 *
 *   slider ──► settings of the next request for drafts (at most 25 a second)
 *          └─► /api/view: the charts anew, from logits that the server has, one request at a time
 */

import { drawBars, drawMap, drawMultiples, drawSweep, counted, share, tokens, write } from "./chart.js";
import { keep, recall } from "./panel.js";
import { Speculation } from "./speculation.js";
import { ConnectionLost, ServerError, TAB, getJson, postJson } from "./transport.js";

/**
 * @typedef {{name: string, label: string, flag: string, default: number | string, low: number, high: number, step: number,
 *            explain: string, choices: string[], main: boolean, whole: boolean}} Control
 * @typedef {{name: string, title: string, says: string, controls: Control[]}} Rule
 * @typedef {{name: string, says: string, controls: Control[]}} Mode
 * @typedef {{rule: string, values: Record<string, any>, temperature: number, mode: string,
 *            mode_values: Record<string, any>, k?: number, length?: number, seed?: number}} Setting
 * @typedef {Setting & {name: string, source: string}} Preset
 * @typedef {{rules: Rule[], modes: Mode[], temperature: {low: number, high: number},
 *            presets: Preset[], own: Preset[], speculation: import("./speculation.js").Offered}} Catalogue
 */

const SWEEP_AFTER = 150; // ms without a change until the temperatures are swept
const SAY_AFTER = 700; // ms without a change until a screen reader is told
const SLIDER = 1000; // steps of a slider whose values grow by factors
const DRAWN = ["sampled", "sampled+superposed"]; // modes that a seed means something to
const MOST_SEED = 2 ** 31 - 1;

/**
 * Load what there is to choose from and build the panel.
 * @param {HTMLElement} root
 * @param {import("./editor.js").Editor} editor
 * @param {HTMLButtonElement} button
 */
export async function openSampling(root, editor, button) {
  return new Sampling(root, editor, button, await getJson("/api/sampling"));
}

export class Sampling {
  /**
   * @param {HTMLElement} root
   * @param {import("./editor.js").Editor} editor
   * @param {HTMLButtonElement} button
   * @param {Catalogue} catalogue
   */
  constructor(root, editor, button, catalogue) {
    this.root = root;
    this.editor = editor;
    this.button = button;
    this.catalogue = catalogue;
    this.panel = /** @type {HTMLElement} */ (root.querySelector("#pd-sampling"));
    this.rules = new Map(catalogue.rules.map((rule) => [rule.name, rule]));
    this.modes = new Map(catalogue.modes.map((mode) => [mode.name, mode]));
    this.rule = "none";
    this.mode = "superposed";
    this.seed = 0;
    /** The controls of every rule as they were last set. @type {Record<string, Record<string, any>>} */
    this.values = Object.fromEntries(catalogue.rules.map((rule) => [rule.name, defaults(rule)]));
    /** The same of every mode. @type {Record<string, Record<string, any>>} */
    this.modeValues = Object.fromEntries(catalogue.modes.map((mode) => [mode.name, defaults(mode)]));
    /** The drawing in sight: bars, rules, sweep or map. */
    this.shown = "bars";
    /** @type {import("./chart.js").View | null} */
    this.view = null;
    this.asking = false;
    this.again = false;
    /** @type {Record<string, number | undefined>} */
    this.timers = {};
    /** What tests and benchmarks read; ms from asking for a chart to having drawn it. */
    this.counters = { views: 0, sweeps: 0, /** @type {number[]} */ viewMs: [] };

    this.build();
    this.speculation = new Speculation(this.find(".sm-speculation"), catalogue.speculation, this);
    this.takeKept();
    this.render();
    this.apply({ ask: this.isChosen() });
    for (const event of ["pd-drafts", "pd-along", "pd-cleared"]) {
      root.addEventListener(event, () => this.positionChanged(event));
    }
    root.addEventListener("pd-reset", () => {
      [this.rule, this.mode, this.seed] = ["none", "superposed", 0];
      this.speculation.reset();
      for (const rule of this.rules.values()) this.values[rule.name] = defaults(rule);
      for (const mode of this.modes.values()) this.modeValues[mode.name] = defaults(mode);
      this.changed();
    });
    Object.assign(window, { polydraftSampling: this });
  }

  /** @type {<T extends HTMLElement>(selector: string) => T} */
  find(selector) {
    return /** @type {any} */ (this.panel.querySelector(selector));
  }

  // ---------------------------------------------------------------- building

  build() {
    const { rules, modes } = this.catalogue;
    const option = (/** @type {string} */ name, /** @type {string} */ title) => `<option value="${name}">${title}</option>`;
    this.panel.innerHTML = `
      <div class="sm-head">
        <h2>Sampling</h2>
        <button type="button" class="sm-link">Copy link</button>
        <button type="button" class="sm-close" aria-label="Close the sampling panel">×</button>
      </div>
      <p class="sm-notice" role="alert" hidden></p>
      <div class="sm-presets">
        <select aria-label="Preset" id="sm-preset"></select>
        <button type="button" class="sm-save">Save</button>
        <button type="button" class="sm-menu" aria-expanded="false" aria-controls="sm-files" aria-label="More about presets">More</button>
      </div>
      <form class="sm-naming" hidden>
        <input type="text" name="name" maxlength="80" required placeholder="Name of the preset" aria-label="Name of the preset" autocomplete="off">
        <button>Save</button><button type="button" class="sm-cancel">Cancel</button>
      </form>
      <div class="sm-files" id="sm-files" hidden>
        <button type="button" class="sm-export">Export</button>
        <button type="button" class="sm-import">Import…</button>
        <button type="button" class="sm-delete">Delete</button>
        <input type="file" accept=".json,application/json" aria-label="A file of presets" hidden>
      </div>
      <div class="sm-pair">
        <label>Rule <select id="sm-rule">${rules.map((rule) => option(rule.name, rule.title)).join("")}</select></label>
        <label>Drafts <select id="sm-mode">${modes.map((mode) => option(mode.name, mode.name)).join("")}</select></label>
      </div>
      <p class="sm-says" id="sm-says"></p>
      <div class="sm-controls"></div>
      <div class="sm-below">
        <button type="button" class="sm-defaults">Defaults</button>
        <button type="button" class="sm-rest" aria-expanded="false" hidden>More controls</button>
        <label class="sm-seed" hidden>Seed <input type="number" min="0" max="${MOST_SEED}" step="1" id="sm-seed">
          <button type="button" title="Draw others">New</button></label>
      </div>
      <div class="sm-speculation" hidden></div>
      <section class="sm-see" aria-label="What it does to the next token">
        <p class="sm-summary"></p>
        <p class="sm-geometry" hidden></p>
        <div class="sm-tabs" role="tablist" aria-label="Drawings">
          ${[["bars", "Tokens"], ["rules", "All rules"], ["sweep", "Temperatures"], ["map", "Map"]]
            .map(([name, title]) => `<button type="button" role="tab" id="sm-tab-${name}" data-shown="${name}" aria-controls="sm-${name}">${title}</button>`)
            .join("")}
        </div>
        ${["bars", "rules", "sweep", "map"]
          .map((name) => `<div class="sm-drawing" id="sm-${name}" role="tabpanel" aria-labelledby="sm-tab-${name}" hidden></div>`)
          .join("")}
      </section>
      <p class="sm-live pd-unseen" aria-live="polite"></p>`;

    const on = (/** @type {string} */ selector, /** @type {string} */ event, /** @type {(event: any) => void} */ action) =>
      this.find(selector).addEventListener(event, action);
    on(".sm-close", "click", () => this.toggle(false));
    on(".sm-link", "click", () => this.copyLink());
    on("#sm-rule", "change", (event) => this.choose(event.target.value));
    on("#sm-mode", "change", (event) => {
      this.mode = event.target.value;
      this.changed();
    });
    on("#sm-seed", "input", (event) => {
      const seed = Number(event.target.value);
      if (event.target.value === "" || !Number.isInteger(seed) || seed < 0 || seed > MOST_SEED) return;
      this.seed = seed;
      this.changed();
    });
    on(".sm-seed button", "click", () => {
      this.seed = Math.floor(Math.random() * 1_000_000);
      this.changed();
    });
    on(".sm-defaults", "click", () => {
      this.values[this.rule] = defaults(this.present());
      this.modeValues[this.mode] = defaults(this.presentMode());
      this.setTemperature(1);
      this.changed();
      this.buildControls();
    });
    on(".sm-rest", "click", (event) => {
      const open = event.currentTarget.getAttribute("aria-expanded") !== "true";
      event.currentTarget.setAttribute("aria-expanded", String(open));
      this.buildControls();
    });
    on("#sm-preset", "change", (event) => this.choosePreset(event.target.value));
    on(".sm-save", "click", () => this.startNaming());
    on(".sm-cancel", "click", () => this.endNaming());
    on(".sm-naming", "submit", (event) => {
      event.preventDefault();
      this.savePreset(event.target.elements.name.value.trim());
    });
    on(".sm-menu", "click", (event) => {
      const open = event.currentTarget.getAttribute("aria-expanded") !== "true";
      event.currentTarget.setAttribute("aria-expanded", String(open));
      this.find(".sm-files").hidden = !open;
    });
    on(".sm-export", "click", () => this.exportPresets());
    on(".sm-import", "click", () => this.find(".sm-files input").click());
    on(".sm-files input", "change", (event) => this.importPresets(event.target));
    on(".sm-delete", "click", () => this.deletePreset());
    for (const tab of this.tabs()) tab.addEventListener("click", () => this.show(tab.dataset.shown ?? ""));
    on(".sm-tabs", "keydown", (event) => this.moveTab(event));
    this.panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.preventDefault();
      if (!this.find(".sm-naming").hidden) this.endNaming();
      else this.toggle(false);
    });
    this.temperature().addEventListener("input", () => {
      this.render();
      this.refresh();
    });
    addEventListener("visibilitychange", () => this.refresh());
  }

  /** The sliders of the present rule, and the temperature beside them. */
  buildControls() {
    const box = this.find(".sm-controls");
    const rule = this.present();
    const all = this.find(".sm-rest").getAttribute("aria-expanded") === "true";
    const controls = rule.controls.filter((control) => control.main || all);
    box.replaceChildren(
      ...controls.map((control) => this.newControl(rule.name, this.values, control)),
      this.newTemperature(),
      ...this.presentMode().controls.map((control) => this.newControl(this.mode, this.modeValues, control)),
    );
    this.find(".sm-rest").hidden = rule.controls.every((control) => control.main);
    this.built = this.wanted();
    this.render();
  }

  /** Which controls there should be. */
  wanted() {
    return `${this.rule} ${this.presentMode().controls.length ? this.mode : ""}`;
  }

  /**
   * @param {string} owner the rule or the mode
   * @param {Record<string, Record<string, any>>} values of all owners
   * @param {Control} control
   */
  newControl(owner, values, control) {
    const id = `sm-${owner}-${control.name}`;
    const field = document.createElement("div");
    field.className = "pd-option";
    const how = `<small id="${id}-how">${control.explain}</small>`;
    if (control.choices.length) {
      field.innerHTML =
        `<span><label for="${id}">${control.label}</label></span>` +
        `<select id="${id}" aria-describedby="${id}-how">${control.choices.map((c) => `<option>${c}</option>`).join("")}</select>${how}`;
    } else {
      const [min, max, step] = grows(control) ? [0, SLIDER, 1] : [control.low, control.high, control.step];
      field.innerHTML =
        `<span><label for="${id}">${control.label}</label><output for="${id}"></output></span>` +
        `<input type="range" id="${id}" min="${min}" max="${max}" step="${step}" aria-describedby="${id}-how">${how}`;
    }
    const input = /** @type {HTMLInputElement} */ (field.querySelector("input, select"));
    input.dataset.control = control.name;
    input.addEventListener("input", () => {
      values[owner][control.name] = control.choices.length ? input.value : valueAt(control, Number(input.value));
      this.changed();
    });
    return field;
  }

  /** The temperature's slider is the footer's, shown here once more. */
  newTemperature() {
    const { min, max, step } = this.temperature();
    const field = document.createElement("div");
    field.className = "pd-option";
    field.innerHTML =
      `<span><label for="sm-temperature">temperature</label><output for="sm-temperature"></output></span>` +
      `<input type="range" id="sm-temperature" min="${min}" max="${max}" step="${step}" aria-describedby="sm-temperature-how">` +
      `<small id="sm-temperature-how">Higher makes the unlikely likelier.</small>`;
    const input = /** @type {HTMLInputElement} */ (field.querySelector("input"));
    input.addEventListener("input", () => this.setTemperature(Number(input.value)));
    return field;
  }

  // ---------------------------------------------------------------- what is chosen

  present() {
    return /** @type {Rule} */ (this.rules.get(this.rule));
  }

  presentMode() {
    return /** @type {Mode} */ (this.modes.get(this.mode));
  }

  /** @returns {HTMLInputElement[]} the footer's settings: k, length, the temperature and the others */
  options() {
    return [.../** @type {NodeListOf<HTMLInputElement>} */ (this.root.querySelectorAll(".pd-options input"))];
  }

  /** @returns {HTMLInputElement} the footer's slider, where the temperature lives */
  temperature() {
    return /** @type {HTMLInputElement} */ (this.root.querySelector(".pd-options [name=temperature]"));
  }

  /** @param {number} t */
  setTemperature(t) {
    this.setOption("temperature", t);
  }

  /**
   * @param {string} name
   * @param {number | boolean | undefined} value undefined leaves it as it is
   */
  setOption(name, value) {
    const input = this.options().find((one) => one.name === name);
    if (!input || value === undefined || optionValue(input) === value) return;
    if (typeof value === "boolean") input.checked = value;
    else input.value = String(value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }

  /** @param {string} rule */
  choose(rule) {
    this.rule = rule;
    this.find(".sm-rest").setAttribute("aria-expanded", "false");
    if (rule !== "top-w" && this.shown === "map") this.show("bars");
    this.changed();
  }

  /** Something was chosen: for the next drafts, for the next visit, and for the charts. */
  changed() {
    this.render();
    this.apply({ ask: true });
    this.refresh();
  }

  isChosen() {
    return this.rule !== "none" || this.mode !== "superposed";
  }

  /** @param {{ask: boolean}} how */
  apply({ ask }) {
    const { rule, mode, seed } = this;
    const chosen = { rule, values: this.values[rule], mode, mode_values: this.modeValues[mode], seed, ...this.speculation.asked() };
    this.editor.sampling = this.isChosen() ? { sampling: chosen } : {};
    if (ask) this.editor.settingsChanged();
    const [values, modeValues] = [touched(this.rules, this.values), touched(this.modes, this.modeValues)];
    const speculation = this.speculation.kept();
    const nothing = !this.isChosen() && !seed && !speculation && !Object.keys({ ...values, ...modeValues }).length;
    keep(nothing ? null : { rule, mode, seed, values, modeValues, speculation });
    write(this.button, ["Sampling", ...this.summary()].join(" · "));
  }

  /** What is not as usual, in a few words. */
  summary() {
    return [this.rule !== "none" ? this.present().title : "", this.mode !== "superposed" ? this.mode : ""].filter(Boolean);
  }

  /** What the last visit chose; what is no longer valid is left at its default. */
  takeKept() {
    const kept = recall();
    if (!kept || typeof kept !== "object") return;
    takeOver(this.rules, this.values, kept.values);
    takeOver(this.modes, this.modeValues, kept.modeValues);
    this.speculation.takeOver(kept.speculation, problem);
    if (this.rules.has(kept.rule)) this.rule = kept.rule;
    if (this.modes.has(kept.mode)) this.mode = kept.mode;
    if (Number.isInteger(kept.seed) && kept.seed >= 0 && kept.seed <= MOST_SEED) this.seed = kept.seed;
  }

  /** All controls as they are chosen. */
  render() {
    const rule = this.present();
    if (this.built !== this.wanted()) return this.buildControls();
    this.find("#sm-rule").value = this.rule;
    this.find("#sm-mode").value = this.mode;
    const mode = this.presentMode();
    write(this.find("#sm-says"), `${rule.says} ${this.mode === "superposed" ? "" : `Drafts: ${lowered(mode.says)}`}`.trim());
    const of = (/** @type {Control[]} */ controls, /** @type {Record<string, any>} */ values) =>
      controls.map((control) => ({ control, value: values[control.name] }));
    for (const { control, value } of [...of(rule.controls, this.values[rule.name]), ...of(mode.controls, this.modeValues[mode.name])]) {
      this.renderControl(control, value);
    }
    this.speculation.render();
    const { value } = this.temperature();
    this.renderSlider(this.find("#sm-temperature"), Number(value), Number(value).toFixed(2));
    const seed = this.find("#sm-seed");
    this.find(".sm-seed").hidden = !DRAWN.includes(this.mode);
    if (document.activeElement !== seed) seed.value = String(this.seed);
    this.find("#sm-tab-map").hidden = this.rule !== "top-w";
    for (const tab of this.tabs()) {
      const selected = tab.dataset.shown === this.shown;
      tab.setAttribute("aria-selected", String(selected));
      tab.tabIndex = selected ? 0 : -1;
      this.find(`#sm-${tab.dataset.shown}`).hidden = !selected;
    }
    this.renderPresets();
  }

  /**
   * @param {Control} control
   * @param {any} value
   * @param {string} shown
   */
  renderControl(control, value, shown = control.choices.length ? value : shownValue(control, value)) {
    const input = /** @type {HTMLInputElement | null} */ (this.panel.querySelector(`[data-control="${control.name}"]`));
    if (!input) return;
    if (control.choices.length) input.value = value;
    else this.renderSlider(input, placeOf(control, value), shown);
  }

  /**
   * @param {HTMLInputElement} input
   * @param {number} place
   * @param {string} shown
   */
  renderSlider(input, place, shown) {
    if (Number(input.value) !== place) input.value = String(place);
    write(this.find(`output[for="${input.id}"]`), shown);
    input.setAttribute("aria-valuetext", shown);
    const fraction = (place - Number(input.min)) / (Number(input.max) - Number(input.min));
    input.style.setProperty("--filled", `${fraction * 100}%`);
  }

  // ---------------------------------------------------------------- the panel and its drawings

  /** @param {boolean} open */
  toggle(open = this.panel.hidden) {
    this.panel.hidden = !open;
    this.root.toggleAttribute("data-panel", open); // for the style sheet; :has() would cost at every key
    this.button.setAttribute("aria-expanded", String(open));
    if (open) this.refresh();
    else this.button.focus();
  }

  tabs() {
    return /** @type {HTMLElement[]} */ ([...this.panel.querySelectorAll(".sm-tabs [role=tab]")]);
  }

  /** @param {string} name */
  show(name) {
    this.shown = name;
    this.render();
    this.refresh();
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

  visible() {
    return !this.panel.hidden && !document.hidden && this.root.dataset.tab !== "stores";
  }

  /** @param {string} event of the editor; see `Editor.tell` */
  positionChanged(event) {
    if (!this.visible()) return;
    if (event === "pd-cleared") {
      // A key clears and asks anew at once: only what stays empty is drawn so.
      this.later("empty", 300, () => {
        if (this.editor.before() === null) this.drawNothing();
      });
    } else if (event === "pd-along") {
      // The drafts serve this position too, but the server has not seen it: now that somebody looks, it shall.
      this.editor.ask({ quiet: true });
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
      const rules = Object.fromEntries(
        [...this.rules.keys()].filter((name) => name !== "none" || this.rule === "none").map((name) => [name, this.values[name]]),
      );
      this.counters.views++;
      const request = { tab: TAB, temperature: Number(this.temperature().value), rules, map: this.shown === "map" };
      this.view = await postJson("/api/view", request);
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
    if (!this.asked) this.editor.ask({ quiet: true });
    this.asked = true;
  }

  /** @param {Record<string, any>} rules */
  async sweep(rules) {
    if (!this.visible() || this.shown !== "sweep") return;
    this.counters.sweeps++;
    try {
      const found = await postJson("/api/sweep", { tab: TAB, rules });
      const titles = Object.fromEntries([...this.rules.values()].map((rule) => [rule.name, rule.title]));
      const temperature = Number(this.temperature().value);
      drawSweep(this.find("#sm-sweep"), found, { rule: this.rule, temperature, titles, possible: this.view?.possible ?? 1 });
    } catch (error) {
      if (!(error instanceof ServerError || error instanceof ConnectionLost)) throw error;
    }
  }

  draw() {
    const { view } = this;
    if (!view) return;
    this.asked = false;
    const chosen = view.choices.find((choice) => choice.rule === this.rule) ?? view.choices[0];
    this.find(".sm-see").classList.remove("sm-empty");
    const summary = this.find(".sm-summary");
    summary.innerHTML =
      `<b>${tokens(chosen.count)}</b> of ${counted(view.possible)} kept · <b>${share(chosen.mass)}</b> of the mass · ` +
      `entropy <b>${chosen.entropy.toFixed(2)}</b> of ${view.entropy.toFixed(2)} nats`;
    const geometry = this.find(".sm-geometry");
    geometry.hidden = this.rule !== "top-w" || !view.top_w;
    if (view.top_w) write(geometry, geometrySays(view.top_w));
    if (this.shown === "bars") drawBars(this.find("#sm-bars"), view, chosen);
    if (this.shown === "rules") drawMultiples(this.find("#sm-rules"), view, this.rule, (rule) => this.choose(rule));
    if (this.shown === "map" && view.map) drawMap(this.find("#sm-map"), view.map);
    this.later("say", SAY_AFTER, () => {
      if (this.panel.contains(document.activeElement)) write(this.find(".sm-live"), summary.textContent ?? "");
    });
  }

  /** @param {string} why */
  drawNothing(why = "Write something, and the model's next token appears here.") {
    this.view = null;
    this.find(".sm-see").classList.add("sm-empty");
    write(this.find(".sm-summary"), why);
    this.find(".sm-geometry").hidden = true;
    for (const name of ["bars", "rules", "sweep", "map"]) this.find(`#sm-${name}`).replaceChildren();
  }

  // ---------------------------------------------------------------- presets

  renderPresets() {
    const select = this.find("#sm-preset");
    const { presets, own } = this.catalogue;
    const listed = JSON.stringify([presets, own].map((list) => list.map(({ name }) => name)));
    if (this.listed !== listed) {
      this.listed = listed;
      const group = (/** @type {string} */ label, /** @type {Preset[]} */ list, /** @type {string} */ kind) => {
        const made = document.createElement("optgroup");
        made.label = label;
        list.forEach((preset, i) => made.append(new Option(preset.name, `${kind}${i}`)));
        return made;
      };
      select.replaceChildren(new Option("Presets", ""), group("From the papers, and ours", presets, "p"));
      if (own.length) select.append(group("Yours", own, "o"));
    }
    const at = (/** @type {Preset[]} */ list, /** @type {string} */ kind) => {
      const i = list.findIndex((preset) => this.isAt(preset));
      return i < 0 ? "" : `${kind}${i}`;
    };
    select.value = at(own, "o") || at(presets, "p");
    /** @type {any} */ (this.find(".sm-delete")).disabled = !select.value.startsWith("o");
    /** @type {any} */ (this.find(".sm-export")).disabled = !own.length;
  }

  /** @param {Preset} preset */
  isAt(preset) {
    const rule = this.rules.get(preset.rule);
    return (
      rule && preset.rule === this.rule && preset.temperature === Number(this.temperature().value) &&
      (!preset.mode || preset.mode === this.mode) &&
      rule.controls.every((c) => (preset.values[c.name] ?? c.default) === this.values[rule.name][c.name]) &&
      (!preset.mode || this.presentMode().controls.every((c) => (preset.mode_values[c.name] ?? c.default) === this.modeValues[this.mode][c.name])) &&
      this.options().every((input) => !(input.name in preset) || /** @type {any} */ (preset)[input.name] === optionValue(input)) &&
      (preset.seed === undefined || preset.seed === this.seed)
    );
  }

  /** @param {string} key */
  choosePreset(key) {
    const preset = this.catalogue[key.startsWith("o") ? "own" : "presets"][Number(key.slice(1))];
    if (!key || !preset) return;
    this.notice("");
    this.take(preset);
  }

  /** @param {Setting} setting */
  take({ rule, values, temperature, mode, mode_values, k, length, seed }) {
    this.values[rule] = { ...defaults(/** @type {Rule} */ (this.rules.get(rule))), ...values };
    if (mode) {
      this.mode = mode;
      this.modeValues[mode] = { ...defaults(this.presentMode()), ...mode_values };
    }
    if (seed !== undefined) this.seed = seed;
    this.rule = rule;
    if (rule !== "top-w" && this.shown === "map") this.shown = "bars";
    this.setTemperature(temperature);
    this.setOption("k", k);
    this.setOption("length", length);
    this.changed();
  }

  startNaming() {
    const form = this.find(".sm-naming");
    form.hidden = false;
    const input = /** @type {HTMLInputElement} */ (form.querySelector("input"));
    const own = this.catalogue.own.find((preset) => this.isAt(preset));
    input.value = own?.name ?? "";
    input.focus();
  }

  endNaming() {
    this.find(".sm-naming").hidden = true;
    this.find(".sm-save").focus();
  }

  /** @param {string} name */
  async savePreset(name) {
    const { rule, mode } = this;
    const [k, length, temperature] = ["k", "length", "temperature"].map((option) => Number(this.editor.settings[option]));
    const preset = {
      name, rule, values: this.values[rule], temperature, mode, mode_values: this.modeValues[mode], k, length,
      ...(DRAWN.includes(mode) ? { seed: this.seed } : {}),
    };
    await this.attempt(async () => {
      this.catalogue.own = (await postJson("/api/presets/save", preset)).own;
      this.endNaming();
      this.editor.toast(`Saved as ${name}.`);
    });
  }

  async deletePreset() {
    const preset = this.catalogue.own.find((one) => this.isAt(one));
    if (!preset) return;
    await this.attempt(async () => {
      this.catalogue.own = (await postJson("/api/presets/delete", { name: preset.name })).own;
      this.editor.toast(`Deleted ${preset.name}.`);
    });
  }

  exportPresets() {
    const link = document.createElement("a");
    link.href = "/api/presets/export";
    link.download = "polydraft-presets.json";
    link.click();
  }

  /** @param {HTMLInputElement} input */
  async importPresets(input) {
    const file = input.files?.[0];
    input.value = ""; // the same file may be chosen again
    if (!file) return;
    if (file.size > 200_000) {
      this.notice("The file is too large to hold presets.");
      return;
    }
    const text = await file.text();
    await this.attempt(async () => {
      const { names, own } = await postJson("/api/presets/import", { text });
      this.catalogue.own = own;
      this.editor.toast(names.length === 1 ? `Imported ${names[0]}.` : `Imported ${names.length} presets.`);
    });
  }

  /** @param {() => Promise<void>} action what may be refused, in words */
  async attempt(action) {
    try {
      await action();
      this.notice("");
    } catch (error) {
      if (!(error instanceof ServerError || error instanceof ConnectionLost)) throw error;
      this.notice(error.message);
    }
    this.render();
  }

  /** @param {string} message */
  notice(message) {
    const box = this.find(".sm-notice");
    box.hidden = !message;
    write(box, message);
  }

  // ---------------------------------------------------------------- links

  /** All that decides the drafts as an address: the names are those of the command line's flags. */
  address() {
    const rule = this.present(), mode = this.presentMode();
    const parts = new URLSearchParams({ rule: rule.name });
    const add = (/** @type {Control[]} */ controls, /** @type {Record<string, any>} */ changed) => {
      for (const { name, flag } of controls) if (name in changed) parts.set(flag, String(changed[name]));
    };
    add(rule.controls, changedValues(rule, this.values[rule.name]));
    parts.set("temperature", this.temperature().value);
    parts.set("mode", this.mode);
    add(mode.controls, changedValues(mode, this.modeValues[mode.name]));
    if (DRAWN.includes(this.mode)) parts.set("seed", String(this.seed));
    const { speculation } = this;
    if (speculation.isOn()) {
      parts.set("speculate", speculation.way);
      parts.set("drafter", speculation.drafter);
      for (const { name, flag, default: usual } of speculation.controls()) {
        if (speculation.values[name] !== usual) parts.set(flag, String(speculation.values[name]));
      }
    }
    for (const input of this.options()) {
      const told = ["k", "length"].includes(input.name) || optionValue(input) !== optionValue(input, true);
      if (input.name !== "temperature" && told) parts.set(flagOf(input), String(optionValue(input)));
    }
    return `${location.origin}${location.pathname}#${parts}`;
  }

  async copyLink() {
    const address = this.address();
    try {
      await navigator.clipboard.writeText(address);
      this.editor.toast("Link copied.");
    } catch {
      this.notice(`The browser did not allow copying. The link: ${address}`);
    }
  }

  /** Take over the setting that the address carries, all of it or nothing, and open the panel. */
  followLink() {
    const parts = [...new URLSearchParams(location.hash.slice(1))];
    // Once taken it is forgotten, so that a reload does not undo what is chosen afterwards.
    history.replaceState(history.state, "", location.pathname + location.search);
    this.toggle(true);
    const found = this.readLink(parts);
    if (typeof found === "string") {
      this.notice(`${found} The link was not followed.`);
      return;
    }
    this.notice("");
    for (const [name, value] of Object.entries(found.options)) this.setOption(name, value);
    this.speculation.reset();
    this.speculation.takeOver(found.speculation, problem);
    this.take(found);
  }

  /**
   * @param {[string, string][]} parts
   * @returns {(Setting & {options: Record<string, number | boolean>, speculation: any}) | string} the setting, what is not named at its
   *   default; or what is wrong with it
   */
  readLink(parts) {
    const said = Object.fromEntries(parts);
    const { low, high } = this.catalogue.temperature;
    const rule = this.rules.get(said.rule ?? "none");
    if (!rule) return `rule ${said.rule} given; one of ${[...this.rules.keys()].join(", ")} expected.`;
    const mode = this.modes.get(said.mode ?? "superposed");
    if (!mode) return `mode ${said.mode} given; one of ${[...this.modes.keys()].join(", ")} expected.`;
    const temperature = Number(said.temperature ?? 1);
    if (!(temperature >= low && temperature <= high)) return `temperature ${said.temperature} given; ${low} to ${high} expected.`;
    const seed = said.seed === undefined ? undefined : Number(said.seed);
    if (seed !== undefined && !(Number.isInteger(seed) && seed >= 0 && seed <= MOST_SEED)) {
      return `seed ${said.seed} given; a whole number from 0 to ${MOST_SEED} expected.`;
    }
    const { ways, offered } = this.speculation;
    const way = ways.get(said.speculate ?? "off");
    if (!way) return `speculate ${said.speculate} given; one of ${[...ways.keys()].join(", ")} expected.`;
    if (way.name === "arc" && offered.arc_missing) return offered.arc_missing;
    const drafters = offered.drafters.map(({ name }) => name);
    const drafter = said.drafter ?? drafters[0];
    if (!drafters.includes(drafter)) return `drafter ${drafter} given; one of ${drafters.join(", ")} expected.`;
    const missing = way.name === "off" ? "" : offered.drafters.find(({ name }) => name === drafter)?.missing;
    if (missing) return missing;
    /** @type {Record<string, any>} */
    const values = {}, mode_values = {}, options = {}, proposing = this.speculation.usual();
    const inputs = this.options().filter(({ name }) => name !== "temperature");
    for (const input of inputs) options[input.name] = optionValue(input, true);
    for (const [name, text] of parts) {
      if (["rule", "mode", "temperature", "seed", "speculate", "drafter"].includes(name)) continue;
      const input = inputs.find((one) => flagOf(one) === name);
      if (input) {
        const value = input.type === "checkbox" ? { true: true, false: false }[text] : numberIn(text);
        if (value === undefined || !allows(input, value)) return `${name} ${text} given; ${expected(input)} expected.`;
        options[input.name] = value;
        continue;
      }
      const control = [...rule.controls, ...mode.controls, ...way.controls].find(({ flag }) => flag === name);
      if (!control) return `${name} given for ${rule.name} and ${mode.name}, which have no control of that name.`;
      const value = control.choices.length ? text : numberIn(text);
      const wrong = problem(control, value);
      if (wrong) return `${name} ${text} given; ${wrong} expected.`;
      (rule.controls.includes(control) ? values : mode.controls.includes(control) ? mode_values : proposing)[control.name] = value;
    }
    const speculation = { way: way.name, drafter, values: proposing };
    return { rule: rule.name, values, temperature, mode: mode.name, mode_values, seed, options, speculation };
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

/** @param {Rule | Mode} owner */
function defaults(owner) {
  return Object.fromEntries(owner.controls.map((control) => [control.name, control.default]));
}

/**
 * @param {Rule | Mode} owner
 * @param {Record<string, any>} values
 */
function changedValues(owner, values) {
  const usual = defaults(owner);
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== usual[name]));
}

/**
 * What is not at its default, by owner.
 * @param {Map<string, Rule | Mode>} owners
 * @param {Record<string, Record<string, any>>} values
 */
function touched(owners, values) {
  const changed = [...owners.values()].map((owner) => [owner.name, changedValues(owner, values[owner.name])]);
  return Object.fromEntries(changed.filter(([, v]) => Object.keys(v).length));
}

/**
 * Kept values into those of all owners, where they are still valid.
 * @param {Map<string, Rule | Mode>} owners
 * @param {Record<string, Record<string, any>>} values
 * @param {Record<string, Record<string, any>> | undefined} kept
 */
function takeOver(owners, values, kept) {
  for (const [name, of] of Object.entries(kept ?? {})) {
    for (const control of owners.get(name)?.controls ?? []) {
      if (!problem(control, of?.[control.name])) values[name][control.name] = of[control.name];
    }
  }
}

// ---------------------------------------------------------------- the footer's settings

/**
 * @param {HTMLInputElement} input
 * @param {boolean} usual its default instead
 */
function optionValue(input, usual = false) {
  if (input.type === "checkbox") return usual ? input.defaultChecked : input.checked;
  return Number(usual ? input.defaultValue : input.value);
}

/** @param {HTMLInputElement} input */
const flagOf = ({ name }) => name.replaceAll("_", "-");

/** @param {string} text */
const numberIn = (text) => (text.trim() === "" ? NaN : Number(text));

/**
 * @param {HTMLInputElement} input
 * @param {number | boolean} value
 */
function allows(input, value) {
  if (typeof value === "boolean") return input.type === "checkbox";
  const whole = Number.isInteger(Number(input.step));
  return value >= Number(input.min) && value <= Number(input.max) && (!whole || Number.isInteger(value));
}

/** @param {HTMLInputElement} input */
function expected({ type, step, min, max }) {
  if (type === "checkbox") return "true or false";
  return `${Number.isInteger(Number(step)) ? "a whole number" : "a number"} from ${min} to ${max}`;
}

/**
 * What a control takes, where it does not take the value; "" where it does.
 * @param {Control} control
 * @param {unknown} value
 */
function problem(control, value) {
  if (control.choices.length) return control.choices.includes(/** @type {string} */ (value)) ? "" : `one of ${control.choices.join(", ")}`;
  const fits = typeof value === "number" && value >= control.low && value <= control.high && (!control.whole || Number.isInteger(value));
  return fits ? "" : `${control.whole ? "a whole number" : "a number"} from ${control.low} to ${control.high}`;
}

// Ranges over several powers of ten: each step of the slider is a factor.
/** @param {Control} control */
const grows = (control) => control.low > 0 && control.high / control.low >= 500;

/**
 * @param {Control} control
 * @param {number} place of the slider
 */
function valueAt(control, place) {
  if (!grows(control)) return place;
  const value = control.low * (control.high / control.low) ** (place / SLIDER);
  const rounded = control.whole ? Math.round(value) : Number(value.toPrecision(2));
  return Math.min(Math.max(rounded, control.low), control.high);
}

/**
 * @param {Control} control
 * @param {number} value
 */
function placeOf(control, value) {
  return grows(control) ? Math.round((SLIDER * Math.log(value / control.low)) / Math.log(control.high / control.low)) : value;
}

/**
 * @param {Control} control
 * @param {number} value
 */
function shownValue(control, value) {
  if (control.whole) return counted(value);
  if (grows(control)) return value.toPrecision(2).replace(/\.?0+$/, "").replace("e-", "·10⁻").replace(/10⁻(\d)/, (_, n) => `10⁻${"⁰¹²³⁴⁵⁶⁷⁸⁹"[n]}`);
  return value.toFixed(String(control.step).split(".")[1]?.length ?? 0);
}

/** @param {string} text */
const lowered = (text) => text.charAt(0).toLowerCase() + text.slice(1);

/** @param {{gained: number, lost: number}} moved */
function geometrySays({ gained, lost }) {
  if (!gained && !lost) return "Distances between tokens made no difference here.";
  const parts = [gained ? `${gained} in` : "", lost ? `${lost} out` : ""].filter(Boolean);
  return `Distances between tokens changed the choice here: ${parts.join(", ")}.`;
}
