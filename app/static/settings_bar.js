// @ts-check
/** The settings below the text: reads their values, keeps them over a reload, and resets them. */

import { disclose } from "./dom.js";
import { keepSettings, recallSettings } from "./memory.js";
import { allows, fill, optionValue } from "./options.js";

/** @typedef {import("./options.js").Field} Field */

export class SettingsBar {
  /**
   * @param {HTMLElement} root
   * @param {() => void} changed called after each change
   */
  constructor(root, changed) {
    this.root = root;
    /** @type {NodeListOf<Field>} */
    this.inputs = root.querySelectorAll(".pd-options [name]");
    /** The values by name, as in requests. @type {Record<string, number | boolean | string>} */
    this.values = {};
    const kept = recallSettings();
    for (const input of this.inputs) {
      if (allows(input, kept[input.name])) fill(input, /** @type {any} */ (kept[input.name]));
      this.read(input);
      input.addEventListener("input", () => {
        this.read(input);
        keepSettings(this.values);
        changed();
      });
    }
    // The settings are closed until the writer opens them.
    disclose(/** @type {HTMLButtonElement} */ (root.querySelector("[data-do=settings]")), false);
  }

  /** Set all settings to their defaults. */
  reset() {
    for (const input of this.inputs) {
      fill(input, optionValue(input, true));
      input.dispatchEvent(new Event("input"));
    }
  }

  /** @param {Field} input */
  read(input) {
    this.values[input.name] = optionValue(input);
    if (input.type === "checkbox" || input instanceof HTMLSelectElement) return;
    const value = Number(input.value);
    const { format = "0" } = input.dataset;
    const shown = format === "%" ? `${Math.round(value * 100)}%` : value.toFixed(Number(format));
    const output = /** @type {HTMLElement} */ (this.root.querySelector(`output[for="${input.id}"]`));
    output.textContent = shown;
    input.setAttribute("aria-valuetext", shown);
    const fraction = (value - Number(input.min)) / (Number(input.max) - Number(input.min));
    input.style.setProperty("--filled", `${fraction * 100}%`);
  }
}
