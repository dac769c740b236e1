// @ts-check
/**
 * How drafts are made, as the panel sets it: the values of all options, by the flags of the command line, beside the
 * names of the rule or chain of rules, of the method, and of the way and the source of speculation.
 * Data only: no page, no server.
 */

/**
 * @typedef {number | boolean | string} Value
 * @typedef {{other: string, value: Value | null, above: number | null, why: string}} NoEffect
 * @typedef {{name: string, flag: string, label: string, default: Value, low: number, high: number, high_alone: number, step: number,
 *            most: number, explain: string, choices: string[], kind: "bool" | "choice" | "int" | "float", info: string, main: boolean, beyond: string,
 *            modes: string[], used_by: string, no_effect: NoEffect[]}} Control
 * @typedef {{name: string, title: string, description: string, flags: string[]}} Owner a method, a way to speculate, or a drafter
 * @typedef {Owner & {alone: boolean, tie: {control: string, by: string, at: number, per: number} | null}} Rule `tie`: its
 *   control is at + per·T while the control `by` has the catalogue's value `tied`
 * @typedef {{name: string, source: string, rule: string, values: Record<string, Value>, temperature: number, mode: string,
 *            mode_values: Record<string, Value>, k?: number, length?: number, seed?: number, drafting: Record<string, Value>}} Preset
 * @typedef {{controls: Record<string, Control>, drafting: string[], rules: Rule[], buttons: string[], modes: Owner[], ways: Owner[],
 *            drafters: Owner[], speculating: string[], drawn: string[], tied: string, usual: Record<string, string>,
 *            styles: Record<string, string>, presets: Preset[], fields: string[],
 *            look: Record<string, string | number>}} Catalogue
 */

const JOIN = "+"; // between the names of a chain's rules, as the server joins them

/** The choices that are no options: their values are names. */
export const CHOICES = ["rule", "mode", "speculate", "drafter"];

export class Setting {
  /** @param {Catalogue} catalogue */
  constructor(catalogue) {
    this.catalogue = catalogue;
    this.controls = catalogue.controls;
    this.rules = byName(catalogue.rules);
    this.modes = byName(catalogue.modes);
    this.ways = byName(catalogue.ways);
    this.drafters = byName(catalogue.drafters);
    /** By flag. @type {Record<string, Value>} */
    this.values = {};
    /** The options of drafting by name, as in requests. @type {Record<string, Value>} */
    this.options = {};
    for (const name of [...CHOICES, ...Object.keys(this.controls)]) this.set(name, this.usual(name));
  }

  /** The default. @param {string} flag @returns {Value} */
  usual(flag) {
    return this.catalogue.usual[flag] ?? this.controls[flag].default;
  }

  /** @param {string} flag @param {Value} value that `problem` allows */
  set(flag, value) {
    this.values[flag] = value;
    if (this.catalogue.drafting.includes(flag)) this.options[this.controls[flag].name] = value;
    const beyond = Object.values(this.controls).find((control) => control.beyond === flag);
    if (beyond && !value && Number(this.values[beyond.flag]) > beyond.high_alone) this.set(beyond.flag, beyond.high_alone);
  }

  /** Set several values, last those whose long end needs another one. @param {Record<string, Value>} values */
  setAll(values) {
    const needing = (/** @type {string} */ flag) => Number(Boolean(this.controls[flag]?.beyond));
    for (const flag of Object.keys(values).sort((a, b) => needing(a) - needing(b))) this.set(flag, values[flag]);
  }

  reset() {
    for (const flag of Object.keys(this.values)) this.set(flag, this.usual(flag));
  }

  // ---------------------------------------------------------------- the choices

  get rule() {
    return String(this.values.rule);
  }

  get mode() {
    return String(this.values.mode);
  }

  /** The names of the chain's rules, in their order. */
  get chain() {
    return namesOf(this.rule);
  }

  /** @param {string[]} names */
  setChain(names) {
    this.values.rule = names.length ? names.join(JOIN) : this.usual("rule");
  }

  /** @param {string} rule a name, or several of a chain */
  titleOf(rule) {
    return namesOf(rule).map((name) => this.rules.get(name)?.title ?? name).join(", then ");
  }

  /** The way to speculate; "off" for a method without. */
  get way() {
    return this.catalogue.speculating.includes(this.mode) ? String(this.values.speculate) : "off";
  }

  get isDrawn() {
    return this.catalogue.drawn.includes(this.mode);
  }

  get isUsual() {
    return this.rule === this.usual("rule") && this.mode === this.usual("mode");
  }

  /** The values of the controls of a rule or a chain, by name. @param {string} rule @returns {Record<string, Value>} */
  valuesOf(rule) {
    return this.named(namesOf(rule).flatMap((name) => this.rules.get(name)?.flags ?? []));
  }

  /** @param {string[]} flags @returns {Record<string, Value>} their values by name */
  named(flags) {
    return Object.fromEntries(flags.map((flag) => [this.controls[flag].name, this.values[flag]]));
  }

  /** The flags that have a control now. */
  shown() {
    const { drafting } = this.catalogue;
    const owners = [...this.chain.map((name) => this.rules.get(name)), this.modes.get(this.mode), this.way === "off" ? null : this.ways.get(this.way)];
    return new Set([...drafting, ...(this.isDrawn ? ["seed"] : []), ...owners.flatMap((owner) => owner?.flags ?? [])]);
  }

  /** The rule's formula for a control that follows the temperature at present, else null. @param {string} flag */
  tieOf(flag) {
    for (const { flags, tie } of this.chain.map((name) => /** @type {Rule} */ (this.rules.get(name)))) {
      if (!tie || !flags.includes(flag) || this.controls[flag].name !== tie.control) continue;
      const by = flags.find((other) => this.controls[other].name === tie.by);
      if (by && this.values[by] === this.catalogue.tied) return tie;
    }
    return null;
  }

  /**
   * Why a control changes nothing at present; "" if it does. As `Control.refuse_without_effect` decides it in Python.
   * @param {string} flag
   */
  idle(flag) {
    const { modes, used_by: usedBy, no_effect: cases } = this.controls[flag];
    if (modes.length && !modes.includes(this.mode) && !(usedBy && this.values[usedBy])) {
      const others = modes.map((mode) => this.modes.get(mode)?.title ?? mode);
      return `Changes nothing in ${lower(this.modes.get(this.mode)?.title ?? this.mode)} drafts, only in ${others.map(lower).join(", ")} ones.`;
    }
    for (const { other, value, above, why } of cases) {
      if (above !== null && Number(this.values[flag]) <= above) continue;
      const present = other === "speculate" ? this.way : this.values[other];
      const off = present === false || present === 0 || present === "off";
      if (value === null ? off : present !== value) continue;
      return `Changes nothing with ${this.mention(other, value)}${why ? `, ${why}` : ""}.`;
    }
    return "";
  }

  /** A choice in words. @param {string} flag @param {Value | null} value null for any that switches it on */
  mention(flag, value) {
    if (flag === "mode") return `the method ${this.modes.get(String(value))?.title ?? value}`;
    if (flag === "rule") return `the rule ${this.titleOf(String(value))}`;
    if (flag === "speculate") return "speculation";
    const { label } = this.controls[flag];
    if (value === null) return label;
    return `${label} ${value === true ? "on" : value === false ? "off" : value}`;
  }

  // ---------------------------------------------------------------- what may be set

  /**
   * What is wrong with a value: "" or what is expected instead. Without the option that its long end needs, a long
   * value is still allowed: see `beyond`.
   * @param {string} flag
   * @param {unknown} value
   */
  problem(flag, value) {
    if (flag === "rule") return this.refusal(String(value));
    const named = { mode: this.modes, speculate: this.ways, drafter: this.drafters }[flag];
    if (named) return named.has(String(value)) ? "" : `one of ${[...named.keys()].join(", ")} expected`;
    const { kind, choices, low, high } = this.controls[flag];
    if (kind === "bool") return typeof value === "boolean" ? "" : "true or false expected";
    if (kind === "choice") return choices.includes(String(value)) ? "" : `one of ${choices.join(", ")} expected`;
    const whole = kind === "int";
    const fits = typeof value === "number" && value >= low && value <= high && (!whole || Number.isInteger(value));
    return fits ? "" : `${whole ? "a whole number" : "a number"} from ${low} to ${high} expected`;
  }

  /** What is wrong with a rule or a chain: "" or a clause. @param {string} rule */
  refusal(rule) {
    const names = namesOf(rule);
    const unknown = names.find((name) => !this.rules.has(name));
    if (unknown !== undefined) return `one of ${[...this.rules.keys()].join(", ")} expected`;
    if (new Set(names).size < names.length) return "every rule at most once expected";
    const alone = names.find((name) => this.rules.get(name)?.alone);
    return names.length > 1 && alone ? `${alone} cannot be combined with other rules` : "";
  }

  /** Why values need an option that they lack; "" if they do not. @param {Record<string, Value>} values by flag */
  beyond(values) {
    for (const { flag, beyond, high_alone: most } of Object.values(this.controls)) {
      if (beyond && !values[beyond] && Number(values[flag]) > most) return `${flag} ${values[flag]} given; at most ${most} expected without ${beyond}.`;
    }
    return "";
  }

  /**
   * What is wrong with the values that are given, each by itself: "" or a sentence.
   * @param {Record<string, any>} given by flag
   * @param {Record<string, any>} written the values as they were written
   */
  wrong(given, written = given) {
    for (const [flag, value] of Object.entries(given)) {
      if (!Object.hasOwn(this.values, flag)) return `${flag} given, which is no option.`;
      const wrong = this.problem(flag, value);
      if (wrong) return `${flag} ${written[flag]} given; ${wrong}.`;
    }
    return "";
  }

  /** Whether a person may set a value now. @param {string} flag @param {any} value */
  allows(flag, value) {
    const beyond = this.controls[flag]?.beyond ? this.beyond({ ...this.values, [flag]: value }) : "";
    return !this.problem(flag, value) && !beyond;
  }

  // ---------------------------------------------------------------- requests, visits, presets and links

  /** The fields of a request for drafts. @returns {Record<string, any>} */
  request() {
    if (this.isUsual) return { ...this.options };
    const { rule, mode, way } = this;
    const sampling = { rule, values: this.valuesOf(rule), mode, mode_values: this.named(this.modes.get(mode)?.flags ?? []), seed: this.values.seed };
    if (way === "off") return { ...this.options, sampling };
    const speculation = { mode: way, drafter: this.values.drafter, values: this.named(this.ways.get(way)?.flags ?? []) };
    return { ...this.options, sampling: { ...sampling, speculation } };
  }

  /** The values that differ from their defaults. @returns {Record<string, Value>} */
  changed() {
    return Object.fromEntries(Object.entries(this.values).filter(([flag, value]) => value !== this.usual(flag)));
  }

  /** Restore the values of the last visit, as far as they are still valid. @param {Record<string, any>} kept */
  recall(kept) {
    const valid = Object.entries(kept).filter(([flag, value]) => Object.hasOwn(this.values, flag) && !this.problem(flag, value));
    const values = { ...this.values, ...Object.fromEntries(valid) };
    if (!this.beyond(values)) for (const [flag, value] of valid) this.set(flag, value);
  }

  /** @param {Preset} preset @returns {Record<string, Value>} by flag; of its rule and method all, else what it names */
  ofPreset(preset) {
    const { rule, mode, values, mode_values, drafting, temperature, k, length, seed } = preset;
    /** @type {Record<string, Value>} */
    const given = { rule, temperature };
    if (mode) given.mode = mode;
    const fill = (/** @type {string[]} */ flags, /** @type {Record<string, Value>} */ of) => {
      for (const flag of flags) given[flag] = of[this.controls[flag].name] ?? this.usual(flag);
    };
    fill(namesOf(rule).flatMap((name) => this.rules.get(name)?.flags ?? []), values);
    if (mode) fill(this.modes.get(mode)?.flags ?? [], mode_values ?? {});
    /** @type {Record<string, Value>} */
    const others = { ...drafting, ...(k === undefined ? {} : { k }), ...(length === undefined ? {} : { length }) };
    for (const flag of this.catalogue.drafting) {
      const { name } = this.controls[flag];
      if (name in others) given[flag] = others[name];
    }
    if (seed !== undefined) given.seed = seed;
    return given;
  }

  /**
   * Whether the present values equal a preset. One that names no options of drafting is not at options of another one
   * that does: those of a paper's method.
   * @param {Preset} preset
   * @param {Preset[]} all
   */
  isAt(preset, all) {
    const at = (/** @type {Preset} */ { drafting = {} }) =>
      Object.entries(drafting).every(([name, value]) => this.options[name] === value);
    const names = (/** @type {Preset} */ { drafting = {} }) => Object.keys(drafting).length > 0;
    const equal = Object.entries(this.ofPreset(preset)).every(([flag, value]) => this.values[flag] === value);
    return equal && (names(preset) || !all.some((other) => names(other) && at(other)));
  }

  /**
   * Set a preset's values. The options of a paper's method go back to their defaults with it.
   * @param {Preset} preset
   * @param {Preset[]} all
   */
  take(preset, all) {
    const given = this.ofPreset(preset);
    for (const { drafting = {} } of all) {
      const names = Object.keys(drafting);
      if (!names.length || !names.every((name) => this.options[name] === drafting[name])) continue;
      for (const flag of this.catalogue.drafting) {
        if (names.includes(this.controls[flag].name) && !(flag in given)) this.set(flag, this.usual(flag));
      }
    }
    this.setAll(given);
  }

  /** The present values as a preset. @param {string} name @returns {Preset} */
  asPreset(name) {
    const { k, length, temperature, ...others } = this.options;
    const flagOf = Object.fromEntries(this.catalogue.drafting.map((flag) => [this.controls[flag].name, flag]));
    const drafting = Object.fromEntries(Object.entries(others).filter(([option, value]) => value !== this.usual(flagOf[option])));
    const { rule, mode } = this;
    const fields = { name, rule, values: this.valuesOf(rule), temperature, mode, mode_values: this.named(this.modes.get(mode)?.flags ?? []), k, length, drafting };
    return /** @type {any} */ (this.isDrawn ? { ...fields, seed: this.values.seed } : fields);
  }

  /** The choices that differ from the defaults, in a few words. */
  inWords() {
    const { rule, mode, way } = this;
    const names = [rule === this.usual("rule") ? "" : this.titleOf(rule), mode === this.usual("mode") ? "" : this.modes.get(mode)?.title, way === "off" ? "" : this.ways.get(way)?.title];
    const values = [...this.shown()].filter((flag) => this.values[flag] !== this.usual(flag)).map((flag) => {
      const { label } = this.controls[flag];
      const value = this.values[flag];
      return `${label.split(" · ")[0]} ${value === true ? "on" : value === false ? "off" : value}`;
    });
    return [...names, ...values].filter(Boolean).join(" · ") || "Defaults";
  }

  /** The part of a link with all settings, under the names of the command line's flags. */
  link() {
    const parts = new URLSearchParams();
    for (const name of this.chain) parts.append("rule", name); // once for each rule of a chain, in their order
    parts.set("mode", this.mode);
    if (this.way !== "off") {
      parts.set("speculate", this.way);
      parts.set("drafter", String(this.values.drafter));
    }
    for (const flag of this.shown()) {
      const always = ["temperature", "k", "length", "seed"].includes(flag);
      if (always || this.values[flag] !== this.usual(flag)) parts.set(flag, String(this.values[flag]));
    }
    return String(parts);
  }

  /**
   * Apply the settings of a link: all, with defaults for everything that it does not name, or none.
   * @param {string} text as `link` wrote it
   * @returns {string} "" or what is wrong, as a sentence
   */
  follow(text) {
    /** @type {Record<string, Value>} */
    const given = {};
    const parts = [...new URLSearchParams(text)];
    const chain = parts.filter(([name]) => name === "rule").map(([, name]) => name);
    if (chain.length) given.rule = chain.join(JOIN);
    for (const [flag, written] of parts) {
      if (flag === "rule") continue;
      if (!Object.hasOwn(this.values, flag)) return this.wrong({ [flag]: written });
      given[flag] = CHOICES.includes(flag) ? written : this.read(flag, written);
    }
    const values = { ...Object.fromEntries(Object.keys(this.values).map((flag) => [flag, this.usual(flag)])), ...given };
    const unfit = this.wrong(given, { ...Object.fromEntries(parts), rule: chain.join(", ") });
    if (unfit) return unfit;
    const before = { ...this.values };
    for (const choice of CHOICES) this.values[choice] = values[choice];
    const allowed = this.shown();
    const owned = [...this.catalogue.rules, ...this.catalogue.modes, ...this.catalogue.ways].flatMap(({ flags }) => flags);
    const foreign = Object.keys(given).find((flag) => owned.includes(flag) && !allowed.has(flag));
    const wrong = foreign ? `${foreign} given for ${this.chain.join(", ")} and ${this.mode}, which have no control of that name.` : this.beyond(values);
    Object.assign(this.values, before);
    if (wrong) return wrong;
    this.setAll(values);
    return "";
  }

  /** @param {string} flag @param {string} written @returns {any} undefined for no value */
  read(flag, written) {
    const { kind } = this.controls[flag];
    if (kind === "choice") return written;
    if (kind === "bool") return { true: true, false: false }[written];
    return written.trim() === "" ? undefined : Number(written);
  }
}

/** @param {string} rule */
export const namesOf = (rule) => rule.split(JOIN);

/** @template {Owner} T @param {T[]} owners */
const byName = (owners) => new Map(owners.map((owner) => [owner.name, owner]));

/** @param {string} title */
const lower = (title) => title.charAt(0).toLowerCase() + title.slice(1);
