// @ts-check
/** Builds labelled fields for the controls of rules, modes and speculation, and draws their values. */

import { counted } from "./chart.js";
import { drawSlider, newElement } from "../shared/dom.js";

/** @typedef {import("./choice.js").Control} Control */

const STEPS = 1000; // positions of a logarithmic slider

/**
 * Build a control's field, for `drawControl`.
 * @param {string} owner the rule or the mode; part of the field's id
 * @param {Control} control
 * @param {(value: any) => void} changed
 */
export function newControl(owner, control, changed) {
  const id = `sm-${owner}-${control.name}`;
  const field = newElement("div", "pd-option");
  const how = `<small id="${id}-how">${control.explain}</small>`;
  if (control.choices.length) {
    field.innerHTML =
      `<span><label for="${id}">${control.label}</label></span>` +
      `<select id="${id}" aria-describedby="${id}-how">${control.choices.map((c) => `<option>${c}</option>`).join("")}</select>${how}`;
  } else {
    const [min, max, step] = isLogarithmic(control) ? [0, STEPS, 1] : [control.low, control.high, control.step];
    field.innerHTML =
      `<span><label for="${id}">${control.label}</label><output for="${id}"></output></span>` +
      `<input type="range" id="${id}" min="${min}" max="${max}" step="${step}" aria-describedby="${id}-how">${how}`;
  }
  const input = /** @type {HTMLInputElement} */ (field.querySelector("input, select"));
  input.dataset.control = control.name;
  input.addEventListener("input", () => changed(control.choices.length ? input.value : valueAt(control, Number(input.value))));
  return field;
}

/**
 * @param {HTMLElement} box with the control's field; without the field nothing is drawn
 * @param {Control} control
 * @param {any} value
 * @param {string} shown
 * @param {boolean} fixed whether the value follows from other settings
 */
export function drawControl(box, control, value, shown = control.choices.length ? value : shownValue(control, value), fixed = false) {
  const input = /** @type {HTMLInputElement | null} */ (box.querySelector(`[data-control="${control.name}"]`));
  if (!input) return;
  input.disabled = fixed;
  if (control.choices.length) input.value = value;
  else drawSlider(input, placeOf(control, value), shown);
}

/**
 * Whether a control's range covers several powers of ten, so that each step of the slider is a factor.
 * @param {Control} control
 */
const isLogarithmic = (control) => control.low > 0 && control.high / control.low >= 500;

/**
 * @param {Control} control
 * @param {number} place of the slider
 */
function valueAt(control, place) {
  if (!isLogarithmic(control)) return place;
  const value = control.low * (control.high / control.low) ** (place / STEPS);
  const rounded = control.whole ? Math.round(value) : Number(value.toPrecision(2));
  return Math.min(Math.max(rounded, control.low), control.high);
}

/**
 * @param {Control} control
 * @param {number} value
 */
function placeOf(control, value) {
  return isLogarithmic(control) ? Math.round((STEPS * Math.log(value / control.low)) / Math.log(control.high / control.low)) : value;
}

/**
 * @param {Control} control
 * @param {number} value
 */
function shownValue(control, value) {
  if (control.whole) return counted(value);
  if (isLogarithmic(control)) return value.toPrecision(2).replace(/\.?0+$/, "").replace("e-", "·10⁻").replace(/10⁻(\d)/, (_, n) => `10⁻${"⁰¹²³⁴⁵⁶⁷⁸⁹"[n]}`);
  return value.toFixed(String(control.step).split(".")[1]?.length ?? 0);
}
