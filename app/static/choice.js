// @ts-check
/**
 * The state of the sampling panel: the rule, the mode, the seed, and the last values of every rule's and mode's controls.
 * Data only: no page, no server.
 */

/**
 * @typedef {{name: string, label: string, flag: string, default: number | string, low: number, high: number, step: number,
 *            explain: string, choices: string[], main: boolean, whole: boolean}} Control
 * @typedef {{name: string, title: string, says: string, controls: Control[]}} Rule
 * @typedef {{name: string, title: string, says: string, controls: Control[]}} Mode
 * @typedef {{rule: string, values: Record<string, any>, temperature: number, mode: string,
 *            mode_values: Record<string, any>, k?: number, length?: number, seed?: number,
 *            drafting?: Record<string, number | boolean | string>}} Setting
 * @typedef {Setting & {name: string, source: string}} Preset
 * @typedef {{rules: Rule[], modes: Mode[], rule: string, mode: string, drawn: string[], seed: Control,
 *            temperature: {low: number, high: number, default: number},
 *            styles: {name: string, says: string}[], presets: Preset[], own: Preset[],
 *            speculation: import("./speculation.js").Offered}} Catalogue
 */

export class Choice {
  /** @param {Catalogue} catalogue */
  constructor({ rules, modes, rule, mode, drawn, seed }) {
    /** The rule, mode and seed by default. */
    this.usual = { rule, mode, seed: Number(seed.default) };
    this.drawn = drawn;
    this.seedControl = seed;
    this.rules = new Map(rules.map((rule) => [rule.name, rule]));
    this.modes = new Map(modes.map((mode) => [mode.name, mode]));
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

  present() {
    return /** @type {Rule} */ (this.rules.get(this.rule));
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
    this.values[this.rule] = defaults(this.present());
    this.modeValues[this.mode] = defaults(this.presentMode());
  }

  /** @param {Setting} setting controls that it does not name get their defaults */
  take({ rule, values, mode, mode_values, seed }) {
    this.values[rule] = { ...defaults(/** @type {Rule} */ (this.rules.get(rule))), ...values };
    this.rule = rule;
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
    const rule = this.rules.get(preset.rule);
    return Boolean(
      rule && preset.rule === this.rule &&
      (!preset.mode || preset.mode === this.mode) &&
      rule.controls.every((c) => (preset.values[c.name] ?? c.default) === this.values[rule.name][c.name]) &&
      (!preset.mode || this.presentMode().controls.every((c) => (preset.mode_values[c.name] ?? c.default) === this.modeValues[this.mode][c.name])) &&
      (preset.seed === undefined || preset.seed === this.seed),
    );
  }

  /** The fields of a request for drafts. */
  requestFields() {
    const { rule, mode, seed } = this;
    return { rule, values: this.values[rule], mode, mode_values: this.modeValues[mode], seed };
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
    if (this.rules.has(kept.rule)) this.rule = kept.rule;
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
