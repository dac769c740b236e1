// @ts-check
/** Controls of rules, modes and speculation as labelled fields: made, and drawn with their values. */

import { counted, write } from "./chart.js";

/** @typedef {import("./choice.js").Control} Control */

const STEPS = 1000; // of a slider whose values grow by factors

/**
 * A control's field, for `drawControl`.
 * @param {string} owner the rule or the mode; with the control's name the field's id
 * @param {Control} control
 * @param {(value: any) => void} changed
 */
export function newControl(owner, control, changed) {
  const id = `sm-${owner}-${control.name}`;
  const field = document.createElement("div");
  field.className = "pd-option";
  const how = `<small id="${id}-how">${control.explain}</small>`;
  if (control.choices.length) {
    field.innerHTML =
      `<span><label for="${id}">${control.label}</label></span>` +
      `<select id="${id}" aria-describedby="${id}-how">${control.choices.map((c) => `<option>${c}</option>`).join("")}</select>${how}`;
  } else {
    const [min, max, step] = grows(control) ? [0, STEPS, 1] : [control.low, control.high, control.step];
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
 * @param {HTMLElement} box that holds the control's field; without it nothing is drawn
 * @param {Control} control
 * @param {any} value
 * @param {string} shown
 */
export function drawControl(box, control, value, shown = control.choices.length ? value : shownValue(control, value)) {
  const input = /** @type {HTMLInputElement | null} */ (box.querySelector(`[data-control="${control.name}"]`));
  if (!input) return;
  if (control.choices.length) input.value = value;
  else drawSlider(input, placeOf(control, value), shown);
}

/**
 * @param {HTMLInputElement} input
 * @param {number} place
 * @param {string} shown
 */
export function drawSlider(input, place, shown) {
  if (Number(input.value) !== place) input.value = String(place);
  const output = input.parentElement?.querySelector("output");
  if (output) write(output, shown);
  input.setAttribute("aria-valuetext", shown);
  const fraction = (place - Number(input.min)) / (Number(input.max) - Number(input.min));
  input.style.setProperty("--filled", `${fraction * 100}%`);
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
  const value = control.low * (control.high / control.low) ** (place / STEPS);
  const rounded = control.whole ? Math.round(value) : Number(value.toPrecision(2));
  return Math.min(Math.max(rounded, control.low), control.high);
}

/**
 * @param {Control} control
 * @param {number} value
 */
function placeOf(control, value) {
  return grows(control) ? Math.round((STEPS * Math.log(value / control.low)) / Math.log(control.high / control.low)) : value;
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
