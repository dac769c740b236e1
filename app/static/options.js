// @ts-check
/** Access to the settings below the text for other parts of the page: presets, links, the sampling panel. */

export class Options {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
  }

  /** @returns {HTMLInputElement[]} of k, length, temperature and the other settings */
  inputs() {
    return [.../** @type {NodeListOf<HTMLInputElement>} */ (this.root.querySelectorAll(".pd-options input"))];
  }

  /** @param {string} name */
  input(name) {
    return this.inputs().find((one) => one.name === name);
  }

  /** @returns {HTMLInputElement} */
  get temperature() {
    return /** @type {HTMLInputElement} */ (this.input("temperature"));
  }

  /**
   * @param {string} name
   * @param {number | boolean | undefined} value undefined changes nothing
   */
  set(name, value) {
    const input = this.input(name);
    if (!input || value === undefined || optionValue(input) === value) return;
    if (typeof value === "boolean") input.checked = value;
    else input.value = String(value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }
}

/**
 * @param {HTMLInputElement} input
 * @param {boolean} usual whether to return the default instead of the present value
 */
export function optionValue(input, usual = false) {
  if (input.type === "checkbox") return usual ? input.defaultChecked : input.checked;
  return Number(usual ? input.defaultValue : input.value);
}

/**
 * The name of the command line's flag, without dashes in front.
 * @param {HTMLInputElement} input
 */
export const flagOf = ({ name }) => name.replaceAll("_", "-");

/**
 * @param {HTMLInputElement} input
 * @param {number | boolean} value
 */
export function allows(input, value) {
  if (typeof value === "boolean") return input.type === "checkbox";
  const whole = Number.isInteger(Number(input.step));
  return value >= Number(input.min) && value <= Number(input.max) && (!whole || Number.isInteger(value));
}

/** @param {HTMLInputElement} input */
export function expected({ type, step, min, max }) {
  if (type === "checkbox") return "true or false";
  return `${Number.isInteger(Number(step)) ? "a whole number" : "a number"} from ${min} to ${max}`;
}
