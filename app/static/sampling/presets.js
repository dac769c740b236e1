// @ts-check
/** The presets of the sampling panel: chooses, saves, deletes, exports and imports them. */

import { disclose, finder, newElement, setText } from "../shared/dom.js";
import { ConnectionLost, ServerError, postJson } from "../shared/transport.js";

/** @typedef {import("./choice.js").Preset} Preset */

const LARGEST = 200_000; // bytes of a file of presets

const MARKUP = `
  <div class="sm-presets">
    <select aria-label="Preset" id="sm-preset"></select>
    <button type="button" class="sm-save">Save</button>
    <button type="button" class="sm-menu" aria-expanded="false" aria-controls="sm-files" aria-label="More about presets">More</button>
  </div>
  <form class="sm-naming" hidden>
    <input type="text" name="name" maxlength="80" required placeholder="Name of the preset" aria-label="Name of the preset" autocomplete="off">
    <button>Save</button><button type="button" class="sm-cancel">Cancel</button>
  </form>
  <div class="sm-files" id="sm-files" hidden>
    <button type="button" class="sm-export">Export</button>
    <button type="button" class="sm-import">Import…</button>
    <button type="button" class="sm-delete">Delete</button>
    <input type="file" accept=".json,application/json" aria-label="A file of presets" hidden>
  </div>
  <ul class="sm-unreadable" hidden></ul>`;

export class Presets {
  /**
   * @param {HTMLElement} box
   * @param {import("./sampling.js").Sampling} panel
   */
  constructor(box, panel) {
    this.box = box;
    /** @type {(selector: string) => any} */
    this.find = finder(box);
    this.panel = panel;
    this.known = panel.catalogue.presets;
    this.own = panel.catalogue.own;
    this.unreadable = panel.catalogue.unreadable;
    /** The names in the list, as JSON. */
    this.listed = "";
    box.innerHTML = MARKUP;
    const on = (/** @type {string} */ selector, /** @type {string} */ event, /** @type {(event: any) => void} */ action) =>
      this.find(selector).addEventListener(event, action);
    on("#sm-preset", "change", (event) => this.choose(event.target.value));
    on(".sm-save", "click", () => this.startNaming());
    on(".sm-cancel", "click", () => this.endNaming());
    on(".sm-naming", "submit", (event) => {
      event.preventDefault();
      this.save(event.target.elements.name.value.trim());
    });
    on(".sm-menu", "click", (event) => disclose(event.currentTarget));
    on(".sm-export", "click", () => this.export());
    on(".sm-import", "click", () => this.find(".sm-files input").click());
    on(".sm-files input", "change", (event) => this.import(event.target));
    on(".sm-delete", "click", () => this.delete());
  }

  render() {
    const select = this.find("#sm-preset");
    const { known, own } = this;
    const listed = JSON.stringify([known, own].map((list) => list.map(({ name }) => name)));
    if (this.listed !== listed) {
      this.listed = listed;
      const group = (/** @type {string} */ label, /** @type {Preset[]} */ list, /** @type {string} */ kind) => {
        const element = document.createElement("optgroup");
        element.label = label;
        list.forEach((preset, i) => element.append(new Option(preset.name, `${kind}${i}`)));
        return element;
      };
      select.replaceChildren(new Option("Choose a preset", ""), group("From Polydraft and the papers", known, "p"));
      if (own.length) select.append(group("Yours", own, "o"));
    }
    const at = (/** @type {Preset[]} */ list, /** @type {string} */ kind) => {
      const i = list.findIndex((preset) => this.isAt(preset));
      return i < 0 ? "" : `${kind}${i}`;
    };
    select.value = at(own, "o") || at(known, "p");
    this.find(".sm-delete").disabled = !select.value.startsWith("o");
    this.find(".sm-export").disabled = !own.length;
    this.renderUnreadable();
  }

  /** Lists the presets that the server cannot read, each with a button that removes it. */
  renderUnreadable() {
    const list = this.find(".sm-unreadable");
    const problems = this.unreadable.map(({ problem }) => problem);
    if (list.dataset.shown === JSON.stringify(problems)) return;
    list.dataset.shown = JSON.stringify(problems);
    list.hidden = !problems.length;
    list.replaceChildren(...this.unreadable.map(({ name, problem }) => {
      const item = newElement("li", "", `<span></span><button type="button">Remove</button>`);
      setText(item.querySelector("span"), problem);
      const remove = /** @type {HTMLElement} */ (item.querySelector("button"));
      remove.setAttribute("aria-label", `Remove ${name}`);
      remove.addEventListener("click", () =>
        this.attempt(async () => {
          this.replace(await postJson("/api/presets/delete", { name }));
          this.panel.page.toast(`Removed ${name}.`);
          this.find("#sm-preset").focus();
        }),
      );
      return item;
    }));
  }

  /** @param {{own: Preset[], unreadable: import("./choice.js").Unreadable[]}} listed */
  replace({ own, unreadable }) {
    this.own = own;
    this.unreadable = unreadable;
  }

  /** @param {Preset} preset */
  isAt(preset) {
    const { choice, options } = this.panel;
    return (
      choice.isAt(preset) && preset.temperature === options.values.temperature &&
      Object.entries(options.values).every(([name, value]) => !(name in preset) || /** @type {any} */ (preset)[name] === value) &&
      (drafts(preset) ? this.draftsAs(preset) : !this.known.some((other) => drafts(other) && this.draftsAs(other)))
    );
  }

  /**
   * Whether the settings below the text are those that the preset names.
   * @param {Preset} preset
   */
  draftsAs({ drafting = {} }) {
    const { options } = this.panel;
    return Object.entries(drafting).every(([name, value]) => value === options.values[name]);
  }

  /** @param {string} key */
  choose(key) {
    const preset = (key.startsWith("o") ? this.own : this.known)[Number(key.slice(1))];
    if (!key || !preset) return;
    this.take(preset);
  }

  /** @param {Preset} preset */
  take(preset) {
    this.panel.notice("");
    // The settings of a paper's method go back to their defaults with it.
    const { options } = this.panel;
    const left = this.known.filter((other) => drafts(other) && this.draftsAs(other)).flatMap(({ drafting }) => Object.keys(drafting ?? {}));
    for (const name of left) if (!(name in (preset.drafting ?? {}))) options.set(name, options.usual(name));
    this.panel.take(preset);
  }

  // ---------------------------------------------------------------- own presets

  get naming() {
    return !this.find(".sm-naming").hidden;
  }

  startNaming() {
    const form = this.find(".sm-naming");
    form.hidden = false;
    const input = /** @type {HTMLInputElement} */ (form.querySelector("input"));
    input.value = this.own.find((preset) => this.isAt(preset))?.name ?? "";
    input.focus();
  }

  endNaming() {
    this.find(".sm-naming").hidden = true;
    this.find(".sm-save").focus();
  }

  /** @param {string} name */
  async save(name) {
    const { choice, options } = this.panel;
    const { k, length, temperature, ...others } = options.values;
    const { rule, values, mode, mode_values, seed } = choice.requestFields();
    const drafting = Object.fromEntries(Object.entries(others).filter(([option, value]) => value !== options.usual(option)));
    const preset = { name, rule, values, temperature, mode, mode_values, k, length, drafting, ...(choice.isDrawn() ? { seed } : {}) };
    await this.attempt(async () => {
      this.replace(await postJson("/api/presets/save", preset));
      this.endNaming();
      this.panel.page.toast(`Saved as ${name}.`);
    });
  }

  async delete() {
    const preset = this.own.find((candidate) => this.isAt(candidate));
    if (!preset) return;
    await this.attempt(async () => {
      this.replace(await postJson("/api/presets/delete", { name: preset.name }));
      this.panel.page.toast(`Deleted ${preset.name}.`);
      this.find("#sm-preset").focus(); // the button is disabled now
    });
  }

  // ---------------------------------------------------------------- files

  export() {
    const link = document.createElement("a");
    link.href = "/api/presets/export";
    link.download = "polydraft-presets.json";
    link.click();
  }

  /** @param {HTMLInputElement} input */
  async import(input) {
    const file = input.files?.[0];
    input.value = ""; // so that choosing the same file again emits "change"
    if (!file) return;
    if (file.size > LARGEST) {
      this.panel.notice("The file is too large for a file of presets. Choose one that was exported here.");
      return;
    }
    const text = await file.text();
    await this.attempt(async () => {
      const { names, ...listed } = await postJson("/api/presets/import", { text });
      this.replace(listed);
      this.panel.page.toast(names.length === 1 ? `Imported ${names[0]}.` : `Imported ${names.length} presets.`);
    });
  }

  /** Run an action and show the server's error, if it refuses. @param {() => Promise<void>} action */
  async attempt(action) {
    try {
      await action();
      this.panel.notice("");
    } catch (error) {
      if (!(error instanceof ServerError || error instanceof ConnectionLost)) throw error;
      this.panel.notice(error.message);
    }
    this.panel.render();
  }
}

/**
 * Whether a preset names settings below the text.
 * @param {Preset} preset
 */
function drafts({ drafting = {} }) {
  return Object.keys(drafting).length > 0;
}
