// @ts-check
/**
 * Drafts of Polydraft in Obsidian's editor: grey text at the caret, the list on demand, keys for a draft and for a word.
 * Obsidian provides the modules that this file imports.
 */
import { isolateHistory } from "@codemirror/commands";
import { Prec, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, keymap, showTooltip, ViewPlugin, WidgetType } from "@codemirror/view";
import { Notice, Plugin, PluginSettingTab, requestUrl, Setting } from "obsidian";

const PAUSE = 60; // ms after the last key
const BEFORE = 6000; // characters that Polydraft reads, at most
const STRIDE = 3000; // the text that it reads begins at a multiple of this: it knows a text by its beginning
const AFTER = 400;
const TOKENS = 12;
const WORD = /^\s*\S+/; // with the space before it
const DEFAULTS = { token: "", port: 7893, drafts: 3, noSlurs: true };

/** @typedef {{at: number, texts: readonly string[], listed: boolean, chosen: number}} Shown the drafts at a place */

/** @type {Shown} */
const NONE = { at: 0, texts: [], listed: false, chosen: 0 };
/** @type {import("@codemirror/state").StateEffectType<Shown>} */
const show = StateEffect.define();

/** The shown drafts. Letters that agree with them shorten them; any other change hides them. */
const shown = StateField.define({
  create: () => NONE,
  /** @param {Shown} value */
  update(value, change) {
    for (const effect of change.effects) if (effect.is(show)) return effect.value;
    if (!value.texts.length) return value;
    const at = change.state.selection.main.head;
    if (!change.docChanged) return at === value.at && change.state.selection.main.empty ? value : NONE;
    if (at <= value.at || !change.isUserEvent("input")) return NONE;
    const typed = change.state.sliceDoc(value.at, at);
    if (change.changes.newLength - change.changes.length !== typed.length) return NONE;
    const texts = value.texts.filter((text) => text.length > typed.length && text.startsWith(typed));
    return texts.length ? { ...NONE, at, texts: texts.map((text) => text.slice(typed.length)) } : NONE;
  },
  provide: (field) => [
    EditorView.decorations.from(field, ({ at, texts }) =>
      texts.length ? Decoration.set([Decoration.widget({ widget: new Ghost(texts[0]), side: 1 }).range(at)]) : Decoration.none
    ),
    showTooltip.from(field, (value) => (value.listed && value.texts.length ? { pos: value.at, above: false, create: listOf } : null)),
  ],
});

class Ghost extends WidgetType {
  /** @param {string} text */
  constructor(text) {
    super();
    this.text = text;
  }

  /** @param {Ghost} other */
  eq(other) {
    return other.text === this.text;
  }

  toDOM() {
    const ghost = document.createElement("span");
    ghost.className = "polydraft-ghost";
    ghost.ariaHidden = "true";
    ghost.textContent = this.text;
    return ghost;
  }
}

/** @param {EditorView} view */
function listOf(view) {
  const dom = document.createElement("div");
  dom.className = "polydraft-list";
  dom.role = "listbox";
  dom.ariaLabel = "Drafts";
  const fill = () => {
    const { texts, chosen } = view.state.field(shown);
    dom.replaceChildren(...texts.map((text, i) => {
      const row = document.createElement("div");
      row.role = "option";
      row.ariaSelected = String(i === chosen);
      const number = document.createElement("kbd");
      number.textContent = String(i + 1);
      row.append(number, text.trim());
      row.addEventListener("mousedown", (event) => {
        event.preventDefault();
        take(view, text);
      });
      return row;
    }));
  };
  fill();
  return { dom, update: fill };
}

/**
 * Inserts a draft, or its beginning; returns whether there is one.
 * @param {EditorView} view
 * @param {string | undefined} text
 */
function take(view, text) {
  const { at } = view.state.field(shown);
  if (!text) return false;
  const caret = { anchor: at + text.length };
  view.dispatch({
    changes: { from: at, insert: text },
    selection: caret,
    userEvent: "input.complete",
    scrollIntoView: true,
    annotations: isolateHistory.of("full"), // one undo takes it back
  });
  return true;
}

/**
 * Whether the text at the end of this one is prose: neither properties, nor code, nor mathematics, nor a comment.
 * @param {string} before
 */
function isProse(before) {
  if (/^---\n/.test(before) && !/^---\n(?:[^]*?\n)?---(?:\n|$)/.test(before)) return false;
  let fence = "";
  let math = false;
  const lines = before.split("\n");
  for (const line of lines.slice(0, -1)) {
    const mark = /^\s*(?:>\s*)*(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (fence) {
      if (mark.startsWith(fence)) fence = "";
    } else if (mark) fence = mark;
    else if (line.split("$$").length % 2 === 0) math = !math;
  }
  const last = lines[lines.length - 1];
  if (fence || math || /^\s*(?:`{3,}|~{3,})/.test(last)) return false;
  const odd = (/** @type {RegExp} */ mark) => (last.match(mark) ?? []).length % 2 === 1;
  return !odd(/`/g) && !odd(/\$\$/g) && !odd(/%%/g) && !/\[\[[^\]]*$/.test(last);
}

class Polydraft extends Plugin {
  settings = DEFAULTS;
  said = ""; // the latest problem, which is shown once

  async onload() {
    this.settings = { ...DEFAULTS, ...(await this.loadData()) };
    this.addSettingTab(new Settings(this.app, this));
    this.registerEditorExtension([shown, Prec.highest(keymap.of(this.keys())), this.requests()]);
  }

  /** @returns {import("@codemirror/view").KeyBinding[]} */
  keys() {
    /** @param {(view: EditorView, value: Shown) => boolean} does */
    const with_ = (does) => (/** @type {EditorView} */ view) => {
      const value = view.state.field(shown);
      return value.texts.length > 0 && !view.composing && does(view, value);
    };
    /** @param {number} by */
    const move = (by) => with_((view, value) => {
      if (!value.listed) return false;
      const chosen = (value.chosen + by + value.texts.length) % value.texts.length;
      view.dispatch({ effects: show.of({ ...value, chosen }) });
      return true;
    });
    return [
      { key: "Tab", run: with_((view, value) => take(view, value.texts[value.chosen])) },
      { key: "Enter", run: with_((view, value) => value.listed && take(view, value.texts[value.chosen])) },
      { key: "Ctrl-ArrowRight", mac: "Alt-ArrowRight", run: with_((view, { texts }) => take(view, WORD.exec(texts[0])?.[0])) },
      { key: "Alt-ArrowDown", run: (view) => this.openList(view) },
      { key: "ArrowDown", run: move(1) },
      { key: "ArrowUp", run: move(-1) },
      { key: "Escape", run: with_((view, value) => {
        view.dispatch({ effects: show.of(value.listed ? { ...value, listed: false, chosen: 0 } : NONE) });
        return true;
      }) },
      ...[1, 2, 3, 4, 5, 6, 7, 8, 9].map((digit) => ({
        key: `Alt-${digit}`,
        run: with_((view, { texts }) => take(view, texts[digit - 1])),
      })),
    ];
  }

  /** Requests drafts when something was typed. */
  requests() {
    const plugin = this;
    return ViewPlugin.fromClass(
      class {
        timer = 0;

        /** @param {import("@codemirror/view").ViewUpdate} update */
        update({ docChanged, transactions, view }) {
          const typed = docChanged && transactions.some((one) => one.isUserEvent("input") || one.isUserEvent("delete"));
          if (!typed || view.state.field(shown).texts.length) return;
          clearTimeout(this.timer);
          this.timer = window.setTimeout(() => plugin.ask(view, false), PAUSE);
        }

        destroy() {
          clearTimeout(this.timer);
        }
      }
    );
  }

  /** @param {EditorView} view */
  openList(view) {
    const value = view.state.field(shown);
    if (value.texts.length) view.dispatch({ effects: show.of({ ...value, listed: true }) });
    else this.ask(view, true);
    return true;
  }

  /**
   * Requests drafts at the caret, and shows them if the text is still the same.
   * @param {EditorView} view
   * @param {boolean} listed
   */
  async ask(view, listed) {
    const { state } = view;
    const { head: at, empty } = state.selection.main;
    const before = state.sliceDoc(0, at);
    if (!empty || view.composing || !/\S/.test(before) || !isProse(before)) return;
    const body = {
      prompt: before.slice(Math.max(Math.ceil((at - BEFORE) / STRIDE) * STRIDE, 0)),
      suffix: state.sliceDoc(at, at + AFTER),
      n: this.settings.drafts,
      max_tokens: TOKENS,
      no_slurs: !listed && this.settings.noSlurs, // the list is asked for
      user: "obsidian", // a newer request replaces the older one
    };
    const texts = await this.drafts(body);
    if (!texts.length || view.state.doc !== state.doc || view.state.selection.main.head !== at) return;
    view.dispatch({ effects: show.of({ at, texts, listed, chosen: 0 }) });
  }

  /**
   * @param {object} body
   * @returns {Promise<string[]>}
   */
  async drafts(body) {
    const { port, token } = this.settings;
    let problem = "";
    try {
      const { status, json } = await requestUrl({
        url: `http://127.0.0.1:${port}/v1/completions`,
        method: "POST",
        contentType: "application/json",
        headers: { Authorization: `Bearer ${token}` },
        body: JSON.stringify(body),
        throw: false,
      });
      if (status === 200) {
        this.said = "";
        return [...new Set(json.choices.map((/** @type {{text: string}} */ choice) => choice.text))].filter(Boolean);
      }
      if (status !== 409) problem = json.error.message;
    } catch {
      problem = `No Polydraft answers at port ${port}. Start \`polydraft\` or \`polydraft serve\`.`;
    }
    if (problem && problem !== this.said) new Notice(`Polydraft: ${problem}`);
    this.said = problem;
    return [];
  }
}

class Settings extends PluginSettingTab {
  /**
   * @param {import("obsidian").App} app
   * @param {Polydraft} plugin
   */
  constructor(app, plugin) {
    super(app, plugin);
    this.plugin = plugin;
  }

  display() {
    const { containerEl, plugin } = this;
    /** @param {Partial<typeof DEFAULTS>} change */
    const keep = (change) => plugin.saveData(Object.assign(plugin.settings, change));
    containerEl.empty();
    new Setting(containerEl)
      .setName("Token")
      .setDesc("What `polydraft token` prints. Obsidian keeps it in this vault's folder: leave that out of what you share.")
      .addText((text) => text.setValue(plugin.settings.token).onChange((token) => keep({ token: token.trim() })));
    new Setting(containerEl)
      .setName("Port")
      .addText((text) => text.setValue(String(plugin.settings.port)).onChange((port) => keep({ port: Number(port) || 7893 })));
    new Setting(containerEl)
      .setName("Drafts")
      .setDesc("How many drafts the list shows.")
      .addSlider((slider) =>
        slider.setLimits(1, 9, 1).setValue(plugin.settings.drafts).onChange((drafts) => keep({ drafts }))
      );
    new Setting(containerEl)
      .setName("No slurs unasked")
      .setDesc("Drafts that appear by themselves contain none of the slurs of the list that comes with Polydraft.")
      .addToggle((toggle) => toggle.setValue(plugin.settings.noSlurs).onChange((noSlurs) => keep({ noSlurs })));
  }
}

export default Polydraft;
