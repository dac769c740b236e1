// @ts-check
/** The settings below the text: shows and checks their values, keeps them over a reload, and resets them. */

import { disclose, drawSlider } from "./dom.js";
import { SETTINGS, keep, recall } from "./memory.js";

/** @typedef {HTMLInputElement | HTMLSelectElement} Field a switch, a slider, or a choice of words */

export class Options {
  /**
   * @param {HTMLElement} root
   * @param {() => void} changed called after each change
   */
  constructor(root, changed) {
    /** k, length, temperature and the other settings. */
    this.inputs = [.../** @type {NodeListOf<Field>} */ (root.querySelectorAll(".pd-options [name]"))];
    /** The values by name, as in requests. @type {Record<string, number | boolean | string>} */
    this.values = {};
    const kept = recall(SETTINGS) ?? {};
    for (const input of this.inputs) {
      if (allows(input, kept[input.name])) fill(input, kept[input.name]);
      this.read(input);
      input.addEventListener("input", () => {
        this.read(input);
        this.limit();
        keep(SETTINGS, this.values);
        changed();
      });
    }
    this.limit();
    // The option has no effect on a model without an adapter to prose.
    root.addEventListener("pd-status", (event) => {
      const { prose } = /** @type {CustomEvent<{prose?: boolean}>} */ (event).detail;
      const option = root.querySelector(".pd-options [name=prose]")?.closest(".pd-option");
      option?.toggleAttribute("hidden", !prose);
    });
    // The settings are closed until the writer opens them.
    disclose(/** @type {HTMLButtonElement} */ (root.querySelector("[data-do=settings]")), false);
  }

  /** @param {Field} input */
  read(input) {
    this.values[input.name] = optionValue(input);
    if (input.type === "checkbox" || input instanceof HTMLSelectElement) return;
    const value = Number(input.value);
    const { format = "0", word } = input.dataset;
    if (word) return drawSlider(input, value, `about ${Math.max(1, Math.round(value * Number(word)))} words`); // tokens
    drawSlider(input, value, format === "%" ? `${Math.round(value * 100)}%` : value.toFixed(Number(format)));
  }

  /** Shorten the sliders whose long end needs another setting, or lengthen them while that one is on. */
  limit() {
    for (const input of this.inputs) {
      const { beyond, slider = "", most = "" } = input.dataset;
      if (!beyond || !(input instanceof HTMLInputElement)) continue;
      input.max = this.values[beyond] ? most : slider;
      this.read(input); // the browser lowers a value above the new end
    }
  }

  /** Set all settings to their defaults. */
  reset() {
    for (const input of this.inputs) {
      fill(input, optionValue(input, true));
      input.dispatchEvent(new Event("input"));
    }
  }

  /** @param {string} name */
  input(name) {
    return this.inputs.find((field) => field.name === name);
  }

  /** The default. @param {string} name */
  usual(name) {
    const input = this.input(name);
    return input && optionValue(input, true);
  }

  /** @returns {HTMLInputElement} */
  get temperature() {
    return /** @type {HTMLInputElement} */ (this.input("temperature"));
  }

  /**
   * @param {string} name
   * @param {number | boolean | string | undefined} value undefined changes nothing
   */
  set(name, value) {
    const input = this.input(name);
    if (!input || value === undefined || this.values[name] === value) return;
    fill(input, value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }

  /**
   * Set several settings, first those that others need for their long end.
   * @param {Record<string, number | boolean | string | undefined>} values
   */
  setAll(values) {
    const needing = (/** @type {string} */ name) => Number(Boolean(this.input(name)?.dataset.beyond));
    for (const name of Object.keys(values).sort((a, b) => needing(a) - needing(b))) this.set(name, values[name]);
  }
}

/**
 * Set a field to a value that it allows. A slider becomes as long as the value needs.
 * @param {Field} input
 * @param {number | boolean | string} value
 */
export function fill(input, value) {
  if (typeof value === "boolean") {
    /** @type {HTMLInputElement} */ (input).checked = value;
    return;
  }
  if (input instanceof HTMLInputElement && input.dataset.most) {
    input.max = (Number(value) > Number(input.dataset.slider) ? input.dataset.most : input.dataset.slider) ?? "";
  }
  input.value = String(value);
}

/**
 * The largest value that a number's field allows; its slider may be shorter.
 * @param {HTMLInputElement} input
 */
export const mostOf = ({ dataset, max }) => Number(dataset.most ?? max);

/**
 * @param {Field} input
 * @param {boolean} usual whether to return the default instead of the present value
 */
export function optionValue(input, usual = false) {
  if (input instanceof HTMLSelectElement) {
    return usual ? ([...input.options].find(({ defaultSelected }) => defaultSelected) ?? input.options[0]).value : input.value;
  }
  if (input.type === "checkbox") return usual ? input.defaultChecked : input.checked;
  return Number(usual ? input.defaultValue : input.value);
}

/**
 * The name of the command line's flag, without dashes in front.
 * @param {Field} input
 */
export const flagOf = ({ name }) => name.replaceAll("_", "-");

/**
 * @param {Field} input
 * @param {unknown} value
 */
export function allows(input, value) {
  if (input instanceof HTMLSelectElement) return [...input.options].some((option) => option.value === value);
  if (input.type === "checkbox") return typeof value === "boolean";
  const whole = Number.isInteger(Number(input.step));
  return typeof value === "number" && value >= Number(input.min) && value <= mostOf(input) && (!whole || Number.isInteger(value));
}

/** @param {Field} input */
export function expected(input) {
  if (input instanceof HTMLSelectElement) return `one of ${[...input.options].map(({ value }) => value).join(", ")}`;
  const { type, step, min } = input;
  if (type === "checkbox") return "true or false";
  return `${Number.isInteger(Number(step)) ? "a whole number" : "a number"} from ${min} to ${mostOf(input)}`;
}
