// @ts-check
/**
 * The state of the sampling panel: the rule or the chain of rules, the mode, the seed, and the last values of every
 * rule's and mode's controls.
 * Data only: no page, no server.
 */

/**
 * @typedef {{name: string, label: string, flag: string, default: number | string, low: number, high: number, step: number,
 *            explain: string, choices: string[], main: boolean, whole: boolean}} Control
 * @typedef {{name: string, title: string, plain: string, description: string, alone: boolean, controls: Control[], tie: Tie | null}} Rule
 * @typedef {{control: string, by: string, at: number, per: number}} Tie a control that is at + per·T while the control
 *   `by` has the catalogue's value `tied`
 * @typedef {{name: string, title: string, description: string, controls: Control[]}} Mode
 * @typedef {{rule: string, values: Record<string, any>, temperature: number, mode: string,
 *            mode_values: Record<string, any>, k?: number, length?: number, seed?: number,
 *            drafting?: Record<string, number | boolean | string>}} Setting
 * @typedef {Setting & {name: string, source: string}} Preset
 * @typedef {{name: string, problem: string}} Unreadable a preset that the server cannot read, and why
 * @typedef {{rules: Rule[], modes: Mode[], rule: string, mode: string, drawn: string[], seed: Control, tied: string,
 *            temperature: {low: number, high: number, default: number},
 *            styles: {name: string, description: string}[], presets: Preset[], own: Preset[], unreadable: Unreadable[],
 *            speculation: import("./speculation.js").Offered}} Catalogue
 */

const JOIN = "+"; // between the names of a chain's rules, as the server joins them

/** @param {string} rule */
const namesOf = (rule) => rule.split(JOIN);

/** @param {string[]} names the rules of a chain, in their order */
export const chainOf = (names) => names.join(JOIN);

export class Choice {
  /** @param {Catalogue} catalogue */
  constructor({ rules, modes, rule, mode, drawn, seed, tied }) {
    /** The rule, mode and seed by default. */
    this.usual = { rule, mode, seed: Number(seed.default) };
    this.drawn = drawn;
    this.tied = tied;
    this.seedControl = seed;
    this.rules = new Map(rules.map((rule) => [rule.name, rule]));
    this.modes = new Map(modes.map((mode) => [mode.name, mode]));
    /** The name of the rule; of a chain, the names of its rules in their order, joined. */
    this.rule = this.usual.rule;
    this.mode = this.usual.mode;
    this.seed = this.usual.seed;
    /** The last values of every rule's controls. @type {Record<string, Record<string, any>>} */
    this.values = allDefaults(this.rules);
    /** The last values of every mode's controls. @type {Record<string, Record<string, any>>} */
    this.modeValues = allDefaults(this.modes);
  }

  reset() {
    Object.assign(this, this.usual);
    [this.values, this.modeValues] = [allDefaults(this.rules), allDefaults(this.modes)];
  }

  /** The names of the chain's rules, in their order. */
  get names() {
    return namesOf(this.rule);
  }

  /** The chain's rules, in their order; one without a chain. */
  parts() {
    return this.names.map((name) => /** @type {Rule} */ (this.rules.get(name)));
  }

  /** The rules that the chain could be extended by. */
  unused() {
    return [...this.rules.values()].filter(({ name, alone }) => !alone && !this.names.includes(name));
  }

  /** The controls of the rule, or of all rules of the chain. */
  controls() {
    return this.parts().flatMap(({ controls }) => controls);
  }

  /** @param {string} rule a name, or several of a chain */
  titleOf(rule) {
    return namesOf(rule).map((name) => this.rules.get(name)?.title ?? name).join(", then ");
  }

  /**
   * The values of the controls of a rule or of all rules of a chain; no two rules have a control of the same name.
   * @param {string} rule
   * @returns {Record<string, any>}
   */
  valuesOf(rule) {
    return Object.assign({}, ...namesOf(rule).map((name) => this.values[name]));
  }

  /**
   * The formula of a control that follows the temperature at present, else null.
   * @param {Rule} rule
   * @param {Control} control
   */
  tieOf({ name, tie }, control) {
    return tie?.control === control.name && this.values[name][tie.by] === this.tied ? tie : null;
  }

  /**
   * Check a rule, or a chain of rules. Returns "" if it can be chosen, else a sentence.
   * @param {string} rule
   */
  refusal(rule) {
    const names = namesOf(rule);
    const unknown = names.find((name) => !this.rules.has(name));
    if (unknown !== undefined) return `rule ${unknown} given; one of ${[...this.rules.keys()].join(", ")} expected.`;
    if (new Set(names).size < names.length) return `rule ${names.join(", ")} given; every rule at most once expected.`;
    const alone = names.find((name) => this.rules.get(name)?.alone);
    return names.length > 1 && alone ? `rule ${alone} given with other rules; it cannot be combined.` : "";
  }

  presentMode() {
    return /** @type {Mode} */ (this.modes.get(this.mode));
  }

  isUsual() {
    return this.rule === this.usual.rule && this.mode === this.usual.mode;
  }

  isDrawn() {
    return this.drawn.includes(this.mode);
  }

  /** @param {unknown} seed */
  isSeed(seed) {
    return !problem(this.seedControl, seed);
  }

  /** Set the controls of the present rule and mode to their defaults. */
  resetPresent() {
    for (const rule of this.parts()) this.values[rule.name] = defaults(rule);
    this.modeValues[this.mode] = defaults(this.presentMode());
  }

  /** @param {Setting} setting controls that it does not name get their defaults */
  take({ rule, values, mode, mode_values, seed }) {
    this.rule = rule;
    for (const part of this.parts()) this.values[part.name] = withDefaults(part, values);
    if (mode) {
      this.mode = mode;
      this.modeValues[mode] = { ...defaults(this.presentMode()), ...mode_values };
    }
    if (seed !== undefined) this.seed = seed;
  }

  /**
   * Whether the present choice equals the preset.
   * @param {Preset} preset
   */
  isAt(preset) {
    const values = this.valuesOf(this.rule);
    return Boolean(
      preset.rule === this.rule &&
      (!preset.mode || preset.mode === this.mode) &&
      this.controls().every((c) => (preset.values[c.name] ?? c.default) === values[c.name]) &&
      (!preset.mode || this.presentMode().controls.every((c) => (preset.mode_values[c.name] ?? c.default) === this.modeValues[this.mode][c.name])) &&
      (preset.seed === undefined || preset.seed === this.seed),
    );
  }

  /** The fields of a request for drafts. */
  requestFields() {
    const { rule, mode, seed } = this;
    return { rule, values: this.valuesOf(rule), mode, mode_values: this.modeValues[mode], seed };
  }

  /** The values to store for the next visit; null if all are at their defaults. */
  kept() {
    const { rule, mode, seed } = this;
    const [values, modeValues] = [allChanged(this.rules, this.values), allChanged(this.modes, this.modeValues)];
    const usual = this.isUsual() && seed === this.usual.seed && !Object.keys({ ...values, ...modeValues }).length;
    return usual ? null : { rule, mode, seed, values, modeValues };
  }

  /**
   * Restore the values of the last visit. A value that is no longer valid is replaced by the default.
   * @param {any} kept
   */
  recall(kept) {
    takeOver(this.rules, this.values, kept.values);
    takeOver(this.modes, this.modeValues, kept.modeValues);
    if (typeof kept.rule === "string" && !this.refusal(kept.rule)) this.rule = kept.rule;
    if (this.modes.has(kept.mode)) this.mode = kept.mode;
    if (this.isSeed(kept.seed)) this.seed = kept.seed;
  }
}

/**
 * Check a value of a control. Returns "" for a valid value, else a description of the values that are valid.
 * @param {Control} control
 * @param {unknown} value
 */
export function problem(control, value) {
  if (control.choices.length) return control.choices.includes(/** @type {string} */ (value)) ? "" : `one of ${control.choices.join(", ")}`;
  const fits = typeof value === "number" && value >= control.low && value <= control.high && (!control.whole || Number.isInteger(value));
  return fits ? "" : `${control.whole ? "a whole number" : "a number"} from ${control.low} to ${control.high}`;
}

/** @param {Rule | Mode} owner */
function defaults(owner) {
  return Object.fromEntries(owner.controls.map((control) => [control.name, control.default]));
}

/**
 * The values of one rule's controls among those of a chain; the others have their defaults.
 * @param {Rule} rule
 * @param {Record<string, any>} values
 */
function withDefaults(rule, values) {
  return Object.fromEntries(rule.controls.map(({ name, default: usual }) => [name, values[name] ?? usual]));
}

/** @param {Map<string, Rule | Mode>} owners */
function allDefaults(owners) {
  return Object.fromEntries([...owners.values()].map((owner) => [owner.name, defaults(owner)]));
}

/**
 * @param {Rule | Mode} owner
 * @param {Record<string, any>} values
 */
export function changedValues(owner, values) {
  const usual = defaults(owner);
  return Object.fromEntries(Object.entries(values).filter(([name, value]) => value !== usual[name]));
}

/**
 * The values that differ from their defaults, by owner.
 * @param {Map<string, Rule | Mode>} owners
 * @param {Record<string, Record<string, any>>} values
 */
function allChanged(owners, values) {
  const changed = [...owners.values()].map((owner) => [owner.name, changedValues(owner, values[owner.name])]);
  return Object.fromEntries(changed.filter(([, v]) => Object.keys(v).length));
}

/**
 * Copy the kept values that are still valid into `values`.
 * @param {Map<string, Rule | Mode>} owners
 * @param {Record<string, Record<string, any>>} values
 * @param {Record<string, Record<string, any>> | undefined} kept
 */
function takeOver(owners, values, kept) {
  for (const [name, of] of Object.entries(kept ?? {})) {
    for (const control of owners.get(name)?.controls ?? []) {
      if (!problem(control, of?.[control.name])) values[name][control.name] = of[control.name];
    }
  }
}
