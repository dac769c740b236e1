// @ts-check
/**
 * The panel beside the text. Its sliders, lists and buttons are Gradio's: see app/web/panel.py. This connects them with
 * the settings: what a person sets there goes into the next request for drafts, and what presets, links and the last
 * visit set appears there.
 *
 *   Gradio ── given(name, value) ──► setting.js ──► request for drafts, charts of nexttoken.js
 *      ▲                                 │
 *      └── updates() ◄── the event "fields" of the editor's component, if fields have to change
 */

import { explain } from "../editor/commands.js";
import { emit, on, part } from "../shared/dom.js";
import { PANEL, SETTINGS, keep, recall } from "../shared/memory.js";
import { Compare } from "./compare.js";
import { failureOf, getJson, postJson } from "../shared/transport.js";
import { Made } from "./made.js";
import { NextToken } from "./nexttoken.js";
import { Presets } from "./presets.js";
import { CHOICES } from "./setting.js";

/**
 * The properties of a field that scripts change.
 * @typedef {{value?: any, visible?: boolean, interactive?: boolean, info?: string, maximum?: number, choices?: [string, string][], open?: boolean}} Props
 * @typedef {import("./setting.js").Value} Value
 * @typedef {{accept_length: number, speedup: number, notice: string | null}} Figures of speculation
 */

/** What the colours of tokens mean. @type {Record<string, string>} */
const COLOURS = {
  off: "The list shows drafts as they are.",
  chance: "The fainter a token’s background, the less likely it was.",
  made: "The colours are those above.",
};
const LOOK = ["font", "size", "width", "spacing"]; // of the text
const MORE = "more"; // the button that shows the other rules
const UNFOLDED_AFTER = 350; // ms that Gradio needs to slide the panel in
const BESIDE = "(min-width: 1100px)"; // windows with room for the panel beside the text

export class Panel {
  /**
   * @param {HTMLElement} root
   * @param {import("../editor/start.js").Editor} editor
   * @param {import("../editor/appearance.js").Appearance} appearance
   * @param {{models: () => void, pair: () => void}} dialogs opens them
   * @param {() => void} trigger lets Gradio call `updates`
   */
  constructor(root, editor, appearance, dialogs, trigger) {
    this.root = root;
    this.editor = editor;
    this.appearance = appearance;
    this.dialogs = dialogs;
    this.setting = editor.setting;
    this.trigger = trigger;
    const kept = recall(PANEL) ?? {};
    /** Whether the panel is open, and how the page shows chances. */
    this.open = matchMedia(BESIDE).matches && (kept.open ?? true);
    this.chances = typeof kept.chances === "string" ? kept.chances : "ink";
    /** How the tokens of drafts are coloured, and whether the panel shows how drafts were made. */
    this.colour = "off";
    this.explains = false;
    this.viewing = false; // whether *View* is unfolded
    /** Whether the writer asked for the rules that are no buttons. */
    this.more = false;
    this.chainNotes = "";
    /** Why the server refused a choice; "" once there is another one. */
    this.refusal = "";
    this.notice = "";
    /** @type {Figures | null} */
    this.figures = null;
    /** Why this model lacks some choices; "" for one that it has. @type {{drafters: Record<string, string>, arc: string}} */
    this.missing = { drafters: {}, arc: "" };
    this.missingLearned = false;
    this.prose = true; // whether the model has an adapter to prose
    this.model = "";
    this.name = ""; // of the preset that is to be saved
    /** What Gradio shows: the properties of each field that were set last. @type {Record<string, Props>} */
    this.drawn = {};
    /** What it is to show, and does not yet. @type {Record<string, Props>} */
    this.due = {};
    this.presets = new Presets(this);
    this.next = new NextToken(this);
    this.compare = new Compare(this);
    this.made = new Made(this);

    on(root, "pd-status", (status) => this.learnModel(status));
    on(root, "pd-refused", (refused) => this.refused(refused));
    root.addEventListener("pd-reset", () => this.reset());
    root.addEventListener("pd-appearance", () => this.render());
    on(root, "pd-figures", (figures) => {
      if (figures === this.figures) return; // null with every line of an answer without speculation
      this.figures = figures;
      this.render();
    });
    root.dataset.chances = this.chances;
    // In a window that has become narrow the panel would cover the text.
    matchMedia(BESIDE).addEventListener("change", ({ matches }) => {
      this.open = matches && (recall(PANEL)?.open ?? true);
      this.render();
    });
    this.render();
  }

  // ---------------------------------------------------------------- from Gradio

  /**
   * A person has set a field.
   * @param {string} name
   * @param {any} value
   */
  given(name, value) {
    const { setting } = this;
    if (setting.controls[name] && !setting.allows(name, value)) return; // an unfinished number: see `settled`
    (this.drawn[name] ??= {})[name === "panel" || name === "view" ? "open" : "value"] = value;
    if (name === "panel") return this.opened(value);
    if (name === "view") return void (this.viewing = value);
    if (name === "show") return this.editor.showing.choose(value);
    if (LOOK.includes(name)) return this.appearance.set(name, value);
    if (name === "chances" || name === "colour" || name === "made") return this.show(name, value);
    if (name === "preset-name") return void (this.name = value.trim());
    if (name === "style" || name === "preset") return this.presets.choose(value);
    if (name === "against") return this.presets.compareWith(value);
    if (name === "unreadable") return void (this.presets.chosenUnreadable = value);
    if (name === "rule") {
      this.more = value === MORE;
      if (!this.more) setting.setChain([value]);
    } else if (name === "rules") {
      setting.setChain(this.combined(value));
    } else {
      setting.set(name, value);
    }
    this.changed();
  }

  /**
   * A slider or its number was let go of, or reset. What is invalid gives way to the present value.
   * @param {string} name
   * @param {any} value
   */
  settled(name, value) {
    if (value === this.setting.values[name] || value === this.appearance.values[name]) return;
    this.given(name, value);
    (this.drawn[name] ??= {}).value = value;
    this.render();
  }

  /** A button was pressed. @param {string} name */
  press(name) {
    const { appearance, presets } = this;
    /** @type {Record<string, () => unknown>} */
    const actions = {
      models: this.dialogs.models, pair: this.dialogs.pair, compare: () => this.compare.toggle(),
      focus: () => appearance.focus(true), pause: () => appearance.togglePause(), reset: () => emit(this.root, "pd-reset"),
      "usual-look": () => {
        appearance.reset();
        this.render();
      },
      "new-seed": () => {
        this.setting.set("seed", Math.floor(Math.random() * 1_000_000));
        this.changed();
      },
      save: () => presets.save(), rename: () => presets.rename(), delete: () => presets.delete(presets.present()?.name),
      "remove-unreadable": () => presets.delete(presets.chosenUnreadable), export: () => presets.export(),
      import: () => presets.import(), link: () => presets.copyLink(),
    };
    actions[name]();
  }

  /** The changes of all fields, in their order; undefined for none. Gradio calls it after `trigger`. */
  updates() {
    const due = this.due;
    this.due = {};
    return this.setting.catalogue.fields.map((name) => due[name] && { __type__: "update", ...due[name] });
  }

  // ---------------------------------------------------------------- choices

  /**
   * The rules that a person chose in the list: a rule that cannot be combined replaces the others.
   * @param {string[]} names in the order in which they were chosen
   */
  combined(names) {
    const { rules, catalogue } = this.setting;
    const newest = names.at(-1);
    if (newest === undefined) return [];
    if (rules.get(newest)?.alone) return newest === catalogue.usual.rule ? [] : [newest];
    return names.filter((name) => !rules.get(name)?.alone);
  }

  /** A click on a chart chooses a rule. @param {string} rule */
  choose(rule) {
    this.more = false;
    this.setting.values.rule = rule;
    this.changed();
  }

  /** The settings have changed: request drafts and charts with them, and store them for the next visit. */
  changed() {
    this.refusal = "";
    this.store();
    this.render();
    this.editor.settingsChanged();
    this.next.show(this.next.shown); // a rule may have drawings of its own
    this.noteChain();
    this.learnSpeculation();
  }

  store() {
    const changed = this.setting.changed();
    keep(SETTINGS, Object.keys(changed).length ? changed : null);
  }

  reset() {
    this.setting.reset();
    this.more = false;
    this.show("chances", "ink");
    this.changed();
  }

  /** @param {boolean} open */
  opened(open) {
    this.open = open;
    if (!open && document.activeElement?.closest("#pd-panel")) this.editor.textarea.focus({ preventScroll: true });
    if (matchMedia(BESIDE).matches) this.keepChoices();
    this.next.refresh();
    this.render();
  }

  toggle() {
    this.opened(!this.open);
  }

  /** Show the part of the panel that says how the page looks, and focus it unless the writer goes on before that. */
  openView() {
    this.viewing = true;
    if (this.open) this.render();
    else this.opened(true);
    const waiting = new AbortController();
    const { signal } = waiting;
    for (const name of ["focusin", "keydown"]) {
      addEventListener(name, () => waiting.abort(), { signal, capture: true });
    }
    setTimeout(() => {
      const section = document.querySelector("#pd-view");
      section?.scrollIntoView({ block: "nearest" });
      if (section && !signal.aborted) part(section, "button")?.focus();
      waiting.abort();
    }, UNFOLDED_AFTER);
  }

  /** What is shown of drafts has changed, and not how they are made. @param {"chances" | "colour" | "made"} name @param {any} value */
  show(name, value) {
    if (name === "chances") this.root.dataset.chances = this.chances = value;
    else if (name === "colour") this.root.dataset.colour = this.colour = value;
    else this.explains = value;
    this.keepChoices();
    this.render();
    this.editor.view.drawList();
    explain(this.editor.drafts, this.explains || this.colour !== "off");
  }

  keepChoices() {
    keep(PANEL, { open: this.open, chances: this.chances });
  }

  /** Request notes on surprising orders of the chain. */
  async noteChain() {
    const { rule, chain } = this.setting;
    /** @type {string[]} */
    let notes = [];
    await failureOf(async () => {
      if (chain.length > 1) ({ notes } = await postJson("/api/chain", { rule }));
    });
    if (this.setting.rule !== rule) return;
    this.chainNotes = notes.join(" ");
    this.render();
  }

  // ---------------------------------------------------------------- from the server

  /** @param {{prose?: boolean, model?: string}} status */
  learnModel({ prose = false, model = "" }) {
    this.prose = prose;
    if (this.model !== model) this.missingLearned = false; // another model
    this.model = model;
    this.render();
    this.learnSpeculation();
  }

  /** Learn once, when a method speculates, which ways the model lacks. */
  async learnSpeculation() {
    if (this.missingLearned || !this.setting.catalogue.speculating.includes(this.setting.mode)) return;
    this.missingLearned = true;
    const failed = await failureOf(async () => (this.missing = await getJson("/api/speculation")));
    if (failed) this.missingLearned = false;
    else this.render();
  }

  /**
   * The server cannot draft with a choice: take it back, so that there are drafts now and at the next visit, and say why.
   * @param {{setting: string, message: string}} refused
   */
  refused({ setting, message }) {
    if (setting !== "speculation") return;
    this.setting.set("speculate", "off");
    this.setting.set("drafter", this.setting.usual("drafter")); // no longer shown, and perhaps the reason
    this.changed();
    this.refusal = `Speculation is off. ${message}`;
    this.render();
    if (!this.open) this.editor.notices.toast(this.refusal, { long: true });
  }

  // ---------------------------------------------------------------- to Gradio

  /** Let Gradio show the present values, if it does not yet. */
  render() {
    this.root.querySelector("[data-do=panel]")?.setAttribute("aria-expanded", String(this.open));
    for (const [name, props] of Object.entries(this.wanted())) {
      const drawn = (this.drawn[name] ??= {});
      for (const [key, value] of Object.entries(props)) {
        const known = /** @type {any} */ (drawn)[key];
        if (known === value || (typeof value === "object" && JSON.stringify(known) === JSON.stringify(value))) continue;
        /** @type {any} */ (drawn)[key] = value;
        /** @type {any} */ (this.due[name] ??= {})[key] = value;
      }
    }
    if (Object.keys(this.due).length) this.trigger();
  }

  /** @returns {Record<string, Props>} by field */
  wanted() {
    const { setting, presets } = this;
    const { values, rules, modes, ways, drafters, catalogue } = setting;
    const shown = setting.shown();
    const button = setting.chain.length === 1 && catalogue.buttons.includes(setting.rule);
    const listed = this.more || !button;
    const single = rules.get(setting.rule);
    const speculates = catalogue.speculating.includes(setting.mode);
    const [arc, off] = [this.missing.arc, setting.way === "off"];
    /** @type {Record<string, Props>} */
    const fields = {
      ...presets.wanted(),
      rule: { value: listed ? MORE : setting.rule, info: single?.description ?? setting.titleOf(setting.rule) },
      rules: {
        visible: listed, value: setting.rule === catalogue.usual.rule ? [] : setting.chain,
        info: this.chainNotes || "The temperature comes first, then the rules from left to right.",
      },
      "rule-more": { visible: setting.chain.some((name) => rules.get(name)?.flags.some((flag) => !setting.controls[flag].main)) },
      mode: { value: setting.mode, info: modes.get(setting.mode)?.description },
      speculate: {
        value: values.speculate, interactive: speculates,
        info: speculates
          ? [this.refusal, ways.get(String(values.speculate))?.description, arc && `ARC cannot be used yet: ${arc}`].filter(Boolean).join(" ")
          : `Changes nothing in ${modes.get(setting.mode)?.title.toLowerCase()} drafts, which are several for one pass already. ` +
            `The methods ${catalogue.speculating.map((name) => modes.get(name)?.title).join(" and ")} have it.`,
      },
      drafter: {
        visible: !off, value: values.drafter,
        info: this.missing.drafters[String(values.drafter)] || drafters.get(String(values.drafter))?.description,
      },
      colour: { value: this.colour, info: COLOURS[this.colour] },
      speculating: { visible: Boolean(this.figures?.accept_length || this.figures?.notice) && !off, value: speed(this.figures) },
      "new-seed": { visible: setting.isDrawn },
      chances: { value: this.chances },
      show: { value: this.editor.showing.setting },
      pause: { value: this.appearance.paused ? "Bring drafts back" : "Pause drafts" },
      view: { open: this.viewing },
      models: { value: this.model ? `Model: ${this.model}…` : "Change the model…" },
      compare: { value: this.compare?.on ? "End" : "Compare" },
      panel: { open: this.open },
    };
    for (const flag of Object.keys(setting.controls)) fields[flag] = this.wantedOf(flag, shown);
    for (const name of LOOK) fields[name] = { value: this.appearance.values[name] };
    if (!this.prose) fields.prose.visible = false;
    return fields;
  }

  /** @param {string} flag @param {Set<string>} shown */
  wantedOf(flag, shown) {
    const { setting } = this;
    const control = setting.controls[flag];
    const tie = setting.tieOf(flag);
    const idle = setting.idle(flag);
    const visible = shown.has(flag);
    const value = tie ? Number((tie.at + tie.per * Number(setting.values.temperature)).toFixed(2)) : setting.values[flag];
    /** @type {Props} */
    const props = { visible, value, interactive: !tie && !idle, info: tie ? `${value} = ${tie.at} + ${tie.per}·T` : idle || control.info };
    if (control.kind === "int" || control.kind === "float") {
      const high = control.beyond && !setting.values[control.beyond] ? control.high_alone : control.high;
      props.maximum = Number(value) > control.most ? control.high : Math.min(control.most, high);
    }
    return props;
  }

  // ---------------------------------------------------------------- links

  /** The address of this page with all settings. */
  link() {
    return `${location.origin}${location.pathname}#${this.setting.link()}`;
  }

  /** Apply the settings in the address, all or none of them, and open the panel. */
  followLink() {
    const text = location.hash.slice(1);
    if (![...CHOICES, "temperature", "seed", "k", "length"].some((flag) => new URLSearchParams(text).has(flag))) return;
    // Remove them from the address, so that a reload does not undo later choices.
    history.replaceState(history.state, "", location.pathname + location.search);
    const way = new URLSearchParams(text).get("speculate");
    const wrong = (way === "arc" && this.missing.arc) || this.setting.follow(text);
    this.notice = wrong ? `${wrong} The link was not followed.` : "";
    this.open = true;
    if (wrong) this.render();
    else this.changed();
  }
}

/** @param {Figures | null} figures */
function speed(figures) {
  const words = figures?.accept_length
    ? `**${figures.accept_length.toFixed(2)}** tokens a pass · **${figures.speedup.toFixed(2)}** × as fast`
    : "";
  return [words, figures?.notice ?? ""].filter(Boolean).join("\n\n");
}
