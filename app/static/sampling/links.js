// @ts-check
/** Links that contain all settings of drafts: writes and parses them. The names are those of the command line's flags. */

import { chainOf, changedValues, problem } from "./choice.js";
import { allows, expected, flagOf, optionValue } from "../shared/options.js";

/**
 * @typedef {import("./choice.js").Control} Control
 * @typedef {import("./sampling.js").Sampling} Sampling
 */

/**
 * @param {Sampling} panel
 * @returns {string}
 */
export function address({ choice, options, speculation }) {
  const mode = choice.presentMode();
  const parts = new URLSearchParams();
  const add = (/** @type {Control[]} */ controls, /** @type {Record<string, any>} */ changed) => {
    for (const { name, flag } of controls) if (name in changed) parts.set(flag, String(changed[name]));
  };
  for (const rule of choice.parts()) {
    parts.append("rule", rule.name); // once for each rule of a chain, in their order
    add(rule.controls, changedValues(rule, choice.values[rule.name]));
  }
  parts.set("temperature", options.temperature.value);
  parts.set("mode", mode.name);
  add(mode.controls, changedValues(mode, choice.modeValues[mode.name]));
  if (choice.isDrawn()) parts.set("seed", String(choice.seed));
  if (speculation.isOn()) {
    parts.set("speculate", speculation.way);
    parts.set("drafter", speculation.drafter);
    for (const { name, flag, default: usual } of speculation.controls()) {
      if (speculation.values[name] !== usual) parts.set(flag, String(speculation.values[name]));
    }
  }
  for (const input of options.inputs) {
    const included = ["k", "length"].includes(input.name) || optionValue(input) !== optionValue(input, true);
    if (input.name !== "temperature" && included) parts.set(flagOf(input), String(optionValue(input)));
  }
  return `${location.origin}${location.pathname}#${parts}`;
}

/**
 * @param {Sampling} panel
 * @param {[string, string][]} parts of the address
 * @returns {(import("./choice.js").Setting & {options: Record<string, number | boolean | string>, speculation: any}) | string} the
 *   setting, with defaults for everything that the link does not name; or a sentence on its error
 */
export function readLink(panel, parts) {
  const given = Object.fromEntries(parts);
  const { low, high, default: usual } = panel.catalogue.temperature;
  const { choice } = panel;
  const { rules, modes } = choice;
  const named = parts.filter(([name]) => name === "rule").map(([, text]) => text);
  const rule = named.length ? chainOf(named) : choice.usual.rule;
  const refusal = choice.refusal(rule);
  if (refusal) return refusal;
  const names = named.length ? named : [rule];
  const ruleControls = names.flatMap((name) => rules.get(name)?.controls ?? []);
  const mode = modes.get(given.mode ?? choice.usual.mode);
  if (!mode) return `mode ${given.mode} given; one of ${[...modes.keys()].join(", ")} expected.`;
  const temperature = Number(given.temperature ?? usual);
  if (!(temperature >= low && temperature <= high)) return `temperature ${given.temperature} given; ${low} to ${high} expected.`;
  const seed = given.seed === undefined ? undefined : Number(given.seed);
  if (seed !== undefined && !choice.isSeed(seed)) return `seed ${given.seed} given; ${problem(choice.seedControl, seed)} expected.`;
  const { ways, offered } = panel.speculation;
  const way = ways.get(given.speculate ?? "off");
  if (!way) return `speculate ${given.speculate} given; one of ${[...ways.keys()].join(", ")} expected.`;
  if (way.name === "arc" && offered.arc_missing) return offered.arc_missing;
  const drafters = offered.drafters.map(({ name }) => name);
  const drafter = given.drafter ?? drafters[0];
  if (!drafters.includes(drafter)) return `drafter ${drafter} given; one of ${drafters.join(", ")} expected.`;
  const missing = way.name === "off" ? "" : offered.drafters.find(({ name }) => name === drafter)?.missing;
  if (missing) return missing;
  /** @type {Record<string, any>[]} */
  const [values, mode_values, options] = [{}, {}, {}];
  const proposing = panel.speculation.usual();
  const inputs = panel.options.inputs.filter(({ name }) => name !== "temperature");
  for (const input of inputs) options[input.name] = optionValue(input, true);
  for (const [name, text] of parts) {
    if (["rule", "mode", "temperature", "seed", "speculate", "drafter"].includes(name)) continue;
    const input = inputs.find((field) => flagOf(field) === name);
    if (input) {
      const value = input.type === "checkbox" ? truthIn(text) : input instanceof HTMLSelectElement ? text : numberIn(text);
      if (value === undefined || !allows(input, value)) return `${name} ${text} given; ${expected(input)} expected.`;
      options[input.name] = value;
      continue;
    }
    const control = [...ruleControls, ...mode.controls, ...way.controls].find(({ flag }) => flag === name);
    if (!control) return `${name} given for ${names.join(", ")} and ${mode.name}, which have no control of that name.`;
    const value = control.choices.length ? text : numberIn(text);
    const wrong = problem(control, value);
    if (wrong) return `${name} ${text} given; ${wrong} expected.`;
    (ruleControls.includes(control) ? values : mode.controls.includes(control) ? mode_values : proposing)[control.name] = value;
  }
  for (const { name, dataset } of inputs) {
    if (dataset.beyond && !options[dataset.beyond] && options[name] > Number(dataset.slider)) {
      return `${name} ${options[name]} given; at most ${dataset.slider} without ${dataset.beyond.replaceAll("_", "-")}.`;
    }
  }
  const speculation = { way: way.name, drafter, values: proposing };
  return { rule, values, temperature, mode: mode.name, mode_values, seed, options, speculation };
}

/** @param {string} text */
const numberIn = (text) => (text.trim() === "" ? NaN : Number(text));

/** @param {string} text */
const truthIn = (text) => (text === "true" ? true : text === "false" ? false : undefined);
