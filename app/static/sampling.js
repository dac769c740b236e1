// @ts-check
/**
 * The sampling panel: which rule crops the model's distributions, its controls, how drafts are made, presets and
 * links; and what all of it does to the next token. Rules, controls and their ranges come from the server's catalogue.
 *
 *   slider ──► settings of the next request for drafts (at most 25 a second)
 *          └─► nexttoken.js: the charts anew
 */

import { write } from "./chart.js";
import { Choice, MOST_SEED, isSeed, problem } from "./choice.js";
import { keep, recall } from "./kept.js";
import { address, readLink } from "./links.js";
import { NextToken } from "./nexttoken.js";
import { Options } from "./options.js";
import { Presets } from "./presets.js";
import { drawControl, drawSlider, newControl } from "./sliders.js";
import { Speculation } from "./speculation.js";
import { getJson } from "./transport.js";

/** @typedef {import("./choice.js").Catalogue} Catalogue */
/** @typedef {import("./choice.js").Control} Control */

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
    this.box = /** @type {HTMLElement} */ (root.querySelector("#pd-sampling"));
    this.choice = new Choice(catalogue);
    this.options = new Options(root);

    this.build();
    this.presets = new Presets(this.find(".sm-preset-box"), this);
    this.speculation = new Speculation(this.find(".sm-speculation"), catalogue.speculation, this);
    this.see = new NextToken(this.find(".sm-see"), this);
    const kept = recall();
    if (kept && typeof kept === "object") {
      this.choice.recall(kept);
      this.speculation.takeOver(kept.speculation, problem);
    }
    this.render();
    this.apply({ ask: !this.choice.isUsual() });
    root.addEventListener("pd-reset", () => {
      this.choice.reset();
      this.speculation.reset();
      this.changed();
    });
    Object.assign(window, { polydraftSampling: this });
  }

  /** @param {string} selector @returns {any} */
  find(selector) {
    return this.box.querySelector(selector);
  }

  // ---------------------------------------------------------------- building

  build() {
    const { rules, modes } = this.catalogue;
    const option = (/** @type {string} */ name, /** @type {string} */ title) => `<option value="${name}">${title}</option>`;
    this.box.innerHTML = `
      <div class="sm-head">
        <h2>Sampling</h2>
        <button type="button" class="sm-link">Copy link</button>
        <button type="button" class="sm-close" aria-label="Close the sampling panel">×</button>
      </div>
      <p class="sm-notice" role="alert" hidden></p>
      <div class="sm-preset-box"></div>
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
      <section class="sm-see" aria-label="What it does to the next token"></section>`;

    const on = (/** @type {string} */ selector, /** @type {string} */ event, /** @type {(event: any) => void} */ action) =>
      this.find(selector).addEventListener(event, action);
    on(".sm-close", "click", () => this.toggle(false));
    on(".sm-link", "click", () => this.copyLink());
    on("#sm-rule", "change", (event) => this.choose(event.target.value));
    on("#sm-mode", "change", (event) => {
      this.choice.mode = event.target.value;
      this.changed();
    });
    on("#sm-seed", "input", (event) => {
      const seed = Number(event.target.value);
      if (event.target.value === "" || !isSeed(seed)) return;
      this.choice.seed = seed;
      this.changed();
    });
    on(".sm-seed button", "click", () => {
      this.choice.seed = Math.floor(Math.random() * 1_000_000);
      this.changed();
    });
    on(".sm-defaults", "click", () => {
      this.choice.resetPresent();
      this.options.set("temperature", 1);
      this.changed();
    });
    on(".sm-rest", "click", (event) => {
      const open = event.currentTarget.getAttribute("aria-expanded") !== "true";
      event.currentTarget.setAttribute("aria-expanded", String(open));
      this.buildControls();
    });
    this.box.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented) return;
      event.preventDefault();
      if (this.presets.naming) this.presets.endNaming();
      else this.toggle(false);
    });
    this.options.temperature.addEventListener("input", () => {
      this.render();
      this.see.refresh();
    });
  }

  /** The sliders of the present rule and mode, and the temperature between them. */
  buildControls() {
    const { choice } = this;
    const rule = choice.present();
    const all = this.find(".sm-rest").getAttribute("aria-expanded") === "true";
    const made = (/** @type {Record<string, Record<string, any>>} */ values, /** @type {string} */ owner) =>
      (/** @type {Control} */ control) =>
        newControl(owner, control, (value) => {
          values[owner][control.name] = value;
          this.changed();
        });
    this.find(".sm-controls").replaceChildren(
      ...rule.controls.filter((control) => control.main || all).map(made(choice.values, rule.name)),
      this.newTemperature(),
      ...choice.presentMode().controls.map(made(choice.modeValues, choice.mode)),
    );
    this.find(".sm-rest").hidden = rule.controls.every((control) => control.main);
    this.built = this.wanted();
    this.render();
  }

  /** Which controls there should be. */
  wanted() {
    return `${this.choice.rule} ${this.choice.presentMode().controls.length ? this.choice.mode : ""}`;
  }

  /** The temperature's slider is the footer's, shown here once more. */
  newTemperature() {
    const { min, max, step } = this.options.temperature;
    const field = document.createElement("div");
    field.className = "pd-option";
    field.innerHTML =
      `<span><label for="sm-temperature">temperature</label><output for="sm-temperature"></output></span>` +
      `<input type="range" id="sm-temperature" min="${min}" max="${max}" step="${step}" aria-describedby="sm-temperature-how">` +
      `<small id="sm-temperature-how">Higher makes the unlikely likelier.</small>`;
    const input = /** @type {HTMLInputElement} */ (field.querySelector("input"));
    input.addEventListener("input", () => this.options.set("temperature", Number(input.value)));
    return field;
  }

  // ---------------------------------------------------------------- what is chosen

  /** @param {string} rule */
  choose(rule) {
    this.choice.rule = rule;
    this.find(".sm-rest").setAttribute("aria-expanded", "false");
    this.changed();
  }

  /** @param {import("./choice.js").Setting} setting */
  take(setting) {
    this.choice.take(setting);
    for (const name of /** @type {const} */ (["temperature", "k", "length"])) this.options.set(name, setting[name]);
    this.changed();
  }

  /** Something was chosen: for the next drafts, for the next visit, and for the charts. */
  changed() {
    this.render();
    this.apply({ ask: true });
    this.see.refresh();
  }

  /** @param {{ask: boolean}} how */
  apply({ ask }) {
    const { choice, speculation } = this;
    this.editor.sampling = choice.isUsual() ? {} : { sampling: { ...choice.asked(), ...speculation.asked() } };
    if (ask) this.editor.settingsChanged();
    const [kept, speculating] = [choice.kept(), speculation.kept()];
    keep(kept || speculating ? { ...kept, speculation: speculating } : null);
    write(this.button, ["Sampling", ...this.summary()].join(" · "));
  }

  /** What is not as usual, in a few words. */
  summary() {
    const { rule, mode } = this.choice;
    return [rule !== "none" ? this.choice.present().title : "", mode !== "superposed" ? mode : ""].filter(Boolean);
  }

  /** All controls as they are chosen. */
  render() {
    if (this.built !== this.wanted()) return this.buildControls();
    const { choice } = this;
    const rule = choice.present(), mode = choice.presentMode();
    this.find("#sm-rule").value = rule.name;
    this.find("#sm-mode").value = mode.name;
    write(this.find("#sm-says"), `${rule.says} ${mode.name === "superposed" ? "" : `Drafts: ${lowered(mode.says)}`}`.trim());
    const box = this.find(".sm-controls");
    for (const control of rule.controls) drawControl(box, control, choice.values[rule.name][control.name]);
    for (const control of mode.controls) drawControl(box, control, choice.modeValues[mode.name][control.name]);
    const temperature = Number(this.options.temperature.value);
    drawSlider(this.find("#sm-temperature"), temperature, temperature.toFixed(2));
    const seed = this.find("#sm-seed");
    this.find(".sm-seed").hidden = !choice.isDrawn();
    if (document.activeElement !== seed) seed.value = String(choice.seed);
    this.speculation.render();
    this.presets.render();
    this.see.render();
  }

  // ---------------------------------------------------------------- the panel

  isOpen() {
    return !this.box.hidden;
  }

  /** @param {boolean} open */
  toggle(open = !this.isOpen()) {
    this.box.hidden = !open;
    this.root.toggleAttribute("data-panel", open); // for the style sheet; :has() would cost at every key
    this.button.setAttribute("aria-expanded", String(open));
    if (open) this.see.refresh();
    else this.button.focus();
  }

  /** @param {string} message */
  notice(message) {
    const box = this.find(".sm-notice");
    box.hidden = !message;
    write(box, message);
  }

  // ---------------------------------------------------------------- links

  async copyLink() {
    const link = address(this);
    try {
      await navigator.clipboard.writeText(link);
      this.editor.toast("Link copied.");
    } catch {
      this.notice(`The browser did not allow copying. The link: ${link}`);
    }
  }

  /** Take over the setting that the address carries, all of it or nothing, and open the panel. */
  followLink() {
    const parts = [...new URLSearchParams(location.hash.slice(1))];
    // Once taken it is forgotten, so that a reload does not undo what is chosen afterwards.
    history.replaceState(history.state, "", location.pathname + location.search);
    this.toggle(true);
    const found = readLink(this, parts);
    if (typeof found === "string") {
      this.notice(`${found} The link was not followed.`);
      return;
    }
    this.notice("");
    for (const [name, value] of Object.entries(found.options)) this.options.set(name, value);
    this.speculation.reset();
    this.speculation.takeOver(found.speculation, problem);
    this.take(found);
  }
}

/** @param {string} text */
const lowered = (text) => text.charAt(0).toLowerCase() + text.slice(1);
