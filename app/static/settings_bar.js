// @ts-check
/** The settings below the text: reads their values, keeps them over a reload, and resets them. */

import { disclose } from "./dom.js";
import { keepSettings, recallSettings } from "./memory.js";

export class SettingsBar {
  /**
   * @param {HTMLElement} root
   * @param {() => void} changed called after each change
   */
  constructor(root, changed) {
    this.root = root;
    /** @type {NodeListOf<HTMLInputElement>} */
    this.inputs = root.querySelectorAll(".pd-options input");
    /** The values by name, as in requests. @type {Record<string, number | boolean>} */
    this.values = {};
    const kept = recallSettings();
    for (const input of this.inputs) {
      const value = kept[input.name];
      if (input.type === "checkbox") {
        if (typeof value === "boolean") input.checked = value;
      } else if (typeof value === "number" && value >= Number(input.min) && value <= Number(input.max)) {
        input.value = String(value);
      }
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
      if (input.type === "checkbox") input.checked = input.defaultChecked;
      else input.value = input.defaultValue;
      input.dispatchEvent(new Event("input"));
    }
  }

  /** @param {HTMLInputElement} input */
  read(input) {
    this.values[input.name] = input.type === "checkbox" ? input.checked : Number(input.value);
    if (input.type === "checkbox") return;
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
