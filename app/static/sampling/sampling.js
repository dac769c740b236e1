// @ts-check
/**
 * The sampling panel: three styles, each with an example; under For experts the rules that truncate the model's
 * distributions, their controls, the method that computes drafts, presets, and charts of the next token. Rules, controls and their ranges come from the
 * server's catalogue.
 *
 *   slider ──► settings of the next request for drafts
 *          └─► nexttoken.js requests the charts again
 */

import { Chain } from "./chain.js";
import { Choice } from "./choice.js";
import { dialogIsOpen, disclose, drawSlider, finder, newElement, setText } from "../shared/dom.js";
import { address, readLink } from "./links.js";
import { SAMPLING, keep, recall } from "../shared/memory.js";
import { NextToken } from "./nexttoken.js";
import { allows, mostOf } from "../shared/options.js";
import { Presets } from "./presets.js";
import { drawControl, newControl } from "./sliders.js";
import { Speculation } from "./speculation.js";
import { Styles } from "./styles.js";

const USUAL = "Balanced"; // the default style, which the button does not name

/** @typedef {import("./choice.js").Catalogue} Catalogue */
/** @typedef {import("./choice.js").Control} Control */

/**
 * What the panel needs of the page. `setSampling` sets the fields of further requests for drafts, and may request drafts
 * with them at once; `refill` requests drafts at the caret for the rows that do not agree; `look` computes the next word there, without drafts; `isWriting`: whether drafts
 * belong at the caret; `before`: the text before the caret if they do; `whyNothing`: a sentence on why there are none; `requests`: the running request and the newest one that was answered; `drawList` draws the rows.
 * @typedef {{options: import("../shared/options.js").Options, toast: (message: string, options?: {long?: boolean}) => void, focusText: () => void,
 *            setSampling: (fields: {sampling?: object}, redraft: boolean) => void, refill: () => void, look: () => void,
 *            isWriting: () => boolean, before: () => string | null, whyNothing: () => string, requests: () => {running: Position | null, answered: Position | null},
 *            drawList: () => void}} Page
 * @typedef {{n: number, before: string}} Position
 */

export class Sampling {
  /**
   * @param {HTMLElement} root
   * @param {Page} page
   * @param {HTMLButtonElement} button
   * @param {Catalogue} catalogue
   */
  constructor(root, page, button, catalogue) {
    this.root = root;
    this.page = page;
    this.button = button;
    this.catalogue = catalogue;
    this.box = /** @type {HTMLElement} */ (root.querySelector("#pd-sampling"));
    /** @type {(selector: string) => any} */
    this.find = finder(this.box);
    this.choice = new Choice(catalogue);
    this.options = page.options;

    this.build();
    this.chain = new Chain(this.find(".sm-rules-box"), this);
    this.presets = new Presets(this.find(".sm-preset-box"), this);
    this.styles = new Styles(this.find(".sm-style-box"), this);
    this.speculation = new Speculation(this.find(".sm-speculation"), catalogue.speculation, this);
    this.see = new NextToken(this.find(".sm-see"), this);
    const kept = recall(SAMPLING);
    if (kept) {
      this.choice.recall(kept);
      this.speculation.takeOver(kept.speculation);
    }
    this.render();
    this.apply({ redraft: !this.choice.isUsual() });
    root.addEventListener("pd-reset", () => {
      this.choice.reset();
      this.speculation.reset();
      this.changed();
    });
    Object.assign(window, { polydraftSampling: this });
  }

  // ---------------------------------------------------------------- building

  build() {
    const { modes } = this.catalogue;
    const option = (/** @type {string} */ name, /** @type {string} */ title) => `<option value="${name}">${title}</option>`;
    this.box.innerHTML = `
      <div class="sm-head">
        <h2>Style of drafts</h2>
        <button type="button" class="sm-link">Copy link</button>
        <button type="button" class="sm-close" aria-label="Close the style of drafts">×</button>
      </div>
      <p class="sm-notice" role="alert" hidden></p>
      <div class="sm-style-box"></div>
      <button type="button" class="sm-advanced-button" aria-expanded="false" aria-controls="sm-advanced">For experts</button>
      <div class="sm-advanced" id="sm-advanced" hidden>
        <div class="sm-preset-box"></div>
        <div class="sm-pair">
          <div class="sm-rules-box"></div>
          <div><label for="sm-mode">Method</label>
            <select id="sm-mode" aria-describedby="sm-mode-description">${modes.map((mode) => option(mode.name, mode.title)).join("")}</select>
            <p class="sm-description" id="sm-mode-description"></p></div>
        </div>
        <div class="sm-controls"></div>
        <div class="sm-below">
          <button type="button" class="sm-defaults">Defaults</button>
          <button type="button" class="sm-rest" aria-expanded="false" hidden>More controls</button>
          <span class="sm-seed" hidden><label for="sm-seed">Seed</label>
            <input type="number" min="0" max="${this.catalogue.seed.high}" step="1" id="sm-seed">
            <button type="button" aria-label="New seed">New</button></span>
        </div>
        <div class="sm-speculation" hidden></div>
        <section class="sm-see" aria-labelledby="sm-see-title"></section>
      </div>`;

    const on = (/** @type {string} */ selector, /** @type {string} */ event, /** @type {(event: any) => void} */ action) =>
      this.find(selector).addEventListener(event, action);
    on(".sm-close", "click", (event) => {
      this.toggle(false);
      if (event.detail > 0 && matchMedia("(pointer: fine)").matches) this.page.focusText();
    });
    on(".sm-link", "click", () => this.copyLink());
    on(".sm-advanced-button", "click", () => this.advance(!this.advanced));
    on("#sm-mode", "change", (event) => {
      this.choice.mode = event.target.value;
      this.changed();
    });
    on("#sm-seed", "input", (event) => {
      const seed = Number(event.target.value);
      if (event.target.value === "" || !this.choice.isSeed(seed)) return;
      this.choice.seed = seed;
      this.changed();
    });
    on(".sm-seed button", "click", () => {
      this.choice.seed = Math.floor(Math.random() * 1_000_000);
      this.changed();
    });
    on(".sm-defaults", "click", () => {
      this.choice.resetPresent();
      this.options.set("temperature", this.catalogue.temperature.default);
      this.changed();
    });
    on(".sm-rest", "click", (event) => {
      disclose(event.currentTarget);
      this.buildControls();
    });
    this.box.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.defaultPrevented || dialogIsOpen()) return;
      event.preventDefault();
      if (this.presets.naming) this.presets.endNaming();
      else this.toggle(false);
    });
    this.options.temperature.addEventListener("input", () => {
      this.render();
      this.nameButton();
      this.see.refresh();
    });
  }

  /** Build the sliders of the present rules and mode, and the temperature between them. */
  buildControls() {
    const { choice } = this;
    const rules = choice.parts();
    const all = this.find(".sm-rest").getAttribute("aria-expanded") === "true";
    const built = (/** @type {Record<string, Record<string, any>>} */ values, /** @type {string} */ owner) =>
      (/** @type {Control} */ control) =>
        newControl(owner, control, (value) => {
          values[owner][control.name] = value;
          this.changed();
        });
    this.find(".sm-controls").replaceChildren(
      ...rules.flatMap((rule) => {
        const shown = rule.controls.filter((control) => control.main || all).map(built(choice.values, rule.name));
        if (rules.length < 2 || !shown.length) return shown;
        return [newElement("h3", "sm-of", rule.title), ...shown];
      }),
      this.newTemperature(),
      ...choice.presentMode().controls.map(built(choice.modeValues, choice.mode)),
    );
    this.find(".sm-rest").hidden = choice.controls().every((control) => control.main);
    this.built = this.wanted();
    this.render();
  }

  /** Identifies the set of controls that the present rule and mode need. */
  wanted() {
    return `${this.choice.rule} ${this.choice.presentMode().controls.length ? this.choice.mode : ""}`;
  }

  /** A second slider for the temperature of the settings below the text. */
  newTemperature() {
    const { min, max, step } = this.options.temperature;
    const most = mostOf(this.options.temperature);
    const field = newElement("div", "pd-option", `
      <span><label for="sm-temperature">Temperature</label>
        <input type="number" id="sm-temperature-exact" min="${min}" max="${most}" step="${step}" aria-label="Temperature, ${min} to ${most}"></span>
      <input type="range" id="sm-temperature" min="${min}" max="${max}" step="${step}" aria-describedby="sm-temperature-how">
      <small id="sm-temperature-how">Higher: more surprising words.</small>`);
    const [exact, slider] = /** @type {HTMLInputElement[]} */ ([...field.querySelectorAll("input")]);
    slider.addEventListener("input", () => this.options.set("temperature", Number(slider.value)));
    exact.addEventListener("change", () => {
      const value = Number(exact.value);
      if (exact.value !== "" && allows(this.options.temperature, value)) this.options.set("temperature", value);
      exact.value = this.options.temperature.value;
    });
    return field;
  }

  // ---------------------------------------------------------------- the choice

  /** @param {string} rule a name, or several of a chain */
  choose(rule) {
    this.choice.rule = rule;
    this.find(".sm-rest").setAttribute("aria-expanded", "false");
    this.changed();
  }

  /** @param {import("./choice.js").Setting} setting */
  take(setting) {
    this.choice.take(setting);
    const { temperature, k, length, drafting } = setting;
    this.options.setAll({ temperature, k, length, ...drafting });
    this.changed();
  }

  /** The choice has changed: draw it, request drafts and charts, and store it for the next visit. */
  changed() {
    this.speculation.refusal = "";
    this.render();
    this.apply({ redraft: true });
    this.see.refresh();
  }

  /** @param {{redraft: boolean}} how `redraft`: whether to request drafts with the new settings */
  apply({ redraft }) {
    const { choice, speculation } = this;
    const fields = { ...choice.requestFields(), ...speculation.requestFields() };
    this.page.setSampling(choice.isUsual() ? {} : { sampling: fields }, redraft);
    const [kept, speculating] = [choice.kept(), speculation.kept()];
    keep(SAMPLING, kept || speculating ? { ...kept, speculation: speculating } : null);
    this.nameButton();
  }

  /** Write the name of the style on the button; if there is none, the tooltip names rule and method. */
  nameButton() {
    const style = this.styles.present();
    setText(this.button, style?.name === USUAL ? "Style of drafts" : `Style of drafts · ${style?.name ?? "Custom"}`);
    this.button.title = style ? "" : `${this.choice.titleOf(this.choice.rule)}, ${this.choice.presentMode().title}`;
  }

  /** Draw all controls with their present values. */
  render() {
    if (this.built !== this.wanted()) return this.buildControls();
    const { choice } = this;
    const mode = choice.presentMode();
    this.chain.render();
    this.find("#sm-mode").value = mode.name;
    setText(this.find("#sm-mode-description"), mode.description);
    const box = this.find(".sm-controls");
    const temperature = Number(this.options.values.temperature);
    for (const rule of choice.parts()) {
      for (const control of rule.controls) {
        const tie = choice.tieOf(rule, control);
        const value = tie ? tie.at + tie.per * temperature : choice.values[rule.name][control.name];
        drawControl(box, control, value, tie ? `${value.toFixed(2)} = ${tie.at} + ${tie.per}·T` : undefined, Boolean(tie));
      }
    }
    for (const control of mode.controls) drawControl(box, control, choice.modeValues[mode.name][control.name]);
    const slider = this.find("#sm-temperature"), exact = this.find("#sm-temperature-exact");
    slider.max = this.options.temperature.max; // a link or the field beside it may have made it longer
    drawSlider(slider, temperature, temperature.toFixed(2));
    if (document.activeElement !== exact) exact.value = String(temperature);
    const seed = this.find("#sm-seed");
    this.find(".sm-seed").hidden = !choice.isDrawn();
    if (document.activeElement !== seed) seed.value = String(choice.seed);
    this.speculation.render();
    this.presets.render();
    this.styles.render();
    this.see.render();
  }

  // ---------------------------------------------------------------- the panel

  isOpen() {
    return !this.box.hidden;
  }

  /** @param {boolean} open */
  toggle(open = !this.isOpen()) {
    disclose(this.button, open);
    if (!open) {
      this.button.focus();
      return;
    }
    if (!this.styles.present()) this.advance(true);
    // A small screen has room for the settings or the panel, not for both.
    const settings = /** @type {HTMLButtonElement} */ (this.root.querySelector("[data-do=settings]"));
    if (matchMedia("(max-width: 819px)").matches) disclose(settings, false);
    this.styles.examples.later();
    this.see.refresh();
  }

  get advanced() {
    return !this.find(".sm-advanced").hidden;
  }

  /** @param {boolean} open whether to show the papers' rules and methods, or only the styles */
  advance(open) {
    disclose(this.find(".sm-advanced-button"), open);
    this.see.render();
    this.see.refresh();
  }

  /** @param {string} message */
  notice(message) {
    const box = this.find(".sm-notice");
    box.hidden = !message;
    setText(box, message);
  }

  // ---------------------------------------------------------------- links

  async copyLink() {
    const link = address(this);
    try {
      await navigator.clipboard.writeText(link);
      this.page.toast("Link copied.");
    } catch {
      this.notice(`The browser did not allow copying. The link: ${link}`);
    }
  }

  /** Apply the settings in the address, all or none of them, and open the panel. */
  followLink() {
    const parts = [...new URLSearchParams(location.hash.slice(1))];
    // Remove them from the address, so that a reload does not undo later choices.
    history.replaceState(history.state, "", location.pathname + location.search);
    this.toggle(true);
    const result = readLink(this, parts);
    if (typeof result === "string") {
      this.notice(`${result} The link was not followed.`);
      return;
    }
    this.notice("");
    this.options.setAll(result.options);
    this.speculation.reset();
    this.speculation.takeOver(result.speculation);
    this.take(result);
  }
}
