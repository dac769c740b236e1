// @ts-check
/** Access to the settings below the text for other parts of the page: presets, links, the sampling panel. */

/** @typedef {HTMLInputElement | HTMLSelectElement} Field a switch, a slider, or a choice of words */

export class Options {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
  }

  /** @returns {Field[]} of k, length, temperature and the other settings */
  inputs() {
    return [.../** @type {NodeListOf<Field>} */ (this.root.querySelectorAll(".pd-options [name]"))];
  }

  /** @param {string} name */
  input(name) {
    return this.inputs().find((one) => one.name === name);
  }

  /**
   * @param {string} name
   * @param {boolean} usual its default instead
   */
  value(name, usual = false) {
    const input = this.input(name);
    return input && optionValue(input, usual);
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
    if (!input || value === undefined || optionValue(input) === value) return;
    fill(input, value);
    input.dispatchEvent(new Event("input", { bubbles: true }));
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
  if (input instanceof HTMLSelectElement) return [...input.options].some((one) => one.value === value);
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
