// @ts-check
/** The presets of the panel: chooses, saves, renames, deletes, exports and imports them, and copies links. */

import { failureOf, getJson, postJson } from "../shared/transport.js";

/** @typedef {import("./setting.js").Preset} Preset */
/** @typedef {{name: string, problem: string}} Unreadable a preset that the server cannot read, and why */

const LARGEST = 200_000; // bytes of a file of presets
export const PINNED = "pinned: "; // the value of the list for the setting that is pinned as A
const OWN = "own: "; // before the names of the writer's own presets, as values of the list

export class Presets {
  /** @param {import("./panel.js").Panel} panel */
  constructor(panel) {
    this.panel = panel;
    this.known = panel.setting.catalogue.presets;
    /** @type {Preset[]} */
    this.own = [];
    /** @type {Unreadable[]} */
    this.unreadable = [];
    this.chosenUnreadable = "";
    this.load();
  }

  /** Learn the writer's own presets. */
  async load() {
    const failed = await failureOf(async () => this.replace(await getJson("/api/presets")));
    if (failed) this.panel.root.addEventListener("pd-status", () => this.load(), { once: true }); // the server answers again
    else this.panel.render();
  }

  /** @param {{own: Preset[], unreadable: Unreadable[]}} listed */
  replace(listed) {
    Object.assign(this, listed);
  }

  /** The own preset that equals the present settings. */
  present() {
    return this.own.find((preset) => this.panel.setting.isAt(preset, this.known));
  }

  /** The fields about presets, for `Panel.wanted`. @returns {Record<string, import("./panel.js").Props>} */
  wanted() {
    const { setting } = this.panel;
    const known = this.known.find((preset) => setting.isAt(preset, this.known));
    const own = this.present();
    const styles = Object.keys(setting.catalogue.styles);
    const style = styles.find((name) => name === known?.name);
    /** @type {[string, string][]} */
    const choices = [...this.own.map(({ name }) => /** @type {[string, string]} */ ([`${name} (yours)`, OWN + name])), ...this.known.map(({ name }) => /** @type {[string, string]} */ ([name, name]))];
    return {
      style: { value: style ?? null, info: style ? setting.catalogue.styles[style] : "Your own setting." },
      preset: { choices, value: own ? OWN + own.name : known?.name ?? null },
      against: {
        visible: this.panel.compare?.on ?? false, choices: [["The pinned setting", PINNED], ...choices],
        value: this.panel.compare?.against ?? PINNED,
      },
      delete: { interactive: Boolean(own) },
      rename: { interactive: Boolean(own) },
      export: { interactive: this.own.length > 0 },
      unreadable: {
        visible: this.unreadable.length > 0, choices: this.unreadable.map(({ name, problem }) => [problem, name]),
        value: this.chosenUnreadable || null,
      },
      "remove-unreadable": { visible: this.unreadable.length > 0 },
      notice: { visible: Boolean(this.panel.notice), value: this.panel.notice },
    };
  }

  /** @param {string} chosen a value of the list @returns {Preset | undefined} */
  named(chosen) {
    if (chosen.startsWith(OWN)) return this.own.find(({ name }) => name === chosen.slice(OWN.length));
    return this.known.find(({ name }) => name === chosen);
  }

  /** Compare the present setting with a preset. @param {string} chosen */
  compareWith(chosen) {
    const preset = this.named(chosen);
    if (preset) this.panel.compare.begin((a) => a.take(preset, this.known), chosen);
    else this.panel.compare.begin();
  }

  /** @param {string} chosen */
  choose(chosen) {
    const preset = this.named(chosen);
    if (!preset) return;
    this.panel.notice = "";
    this.panel.more = false;
    this.panel.setting.take(preset, this.known);
    this.panel.changed();
  }

  async save(name = this.panel.name) {
    if (!name) return this.say("Write a name for the preset, then save it.");
    await this.attempt(async () => {
      this.replace(await postJson("/api/presets/save", this.panel.setting.asPreset(name)));
      this.panel.editor.notices.toast(`Saved as ${name}.`);
    });
  }

  async rename() {
    const preset = this.present();
    const { name } = this.panel;
    if (!preset || !name || name === preset.name) return this.say("Choose a preset of yours and write its new name, then rename it.");
    await this.attempt(async () => {
      await postJson("/api/presets/save", { ...this.panel.setting.asPreset(name) });
      this.replace(await postJson("/api/presets/delete", { name: preset.name }));
      this.panel.editor.notices.toast(`${preset.name} is now ${name}.`);
    });
  }

  /** @param {string | undefined} name */
  async delete(name) {
    if (!name) return;
    await this.attempt(async () => {
      this.replace(await postJson("/api/presets/delete", { name }));
      this.chosenUnreadable = "";
      this.panel.editor.notices.toast(`Deleted ${name}.`);
    });
  }

  export() {
    const link = document.createElement("a");
    link.href = "/api/presets/export";
    link.download = "polydraft-presets.json";
    link.click();
  }

  import() {
    const input = document.createElement("input");
    Object.assign(input, { type: "file", accept: ".json,.yaml,.yml,application/json" });
    input.addEventListener("change", async () => {
      const file = input.files?.[0];
      if (!file) return;
      if (file.size > LARGEST) return this.say("The file is too large for a file of presets. Choose one that was exported here.");
      const text = await file.text();
      await this.attempt(async () => {
        const name = file.name.replace(/\.[^.]*$/, "").slice(0, 80) || "Imported";
        const { names, left_out: leftOut, ...listed } = await postJson("/api/presets/import", { text, name });
        this.replace(listed);
        this.panel.editor.notices.toast(names.length === 1 ? `Imported ${names[0]}.` : `Imported ${names.length} presets.`);
        return leftOut.length ? `Left out of ${names[0]}, because Polydraft has nothing of the same meaning: ${leftOut.join("; ")}.` : "";
      });
    });
    input.click();
  }

  async copyLink() {
    const link = this.panel.link();
    try {
      await navigator.clipboard.writeText(link);
      this.panel.editor.notices.toast("Link copied.");
    } catch {
      this.say(`The browser did not allow copying. The link: ${link}`);
    }
  }

  /** @param {string} notice */
  say(notice) {
    this.panel.notice = notice;
    this.panel.render();
  }

  /** Run an action and show what it returns, or the server's error if it refuses. @param {() => Promise<string | void>} action */
  async attempt(action) {
    let notice = "";
    const failed = await failureOf(async () => (notice = (await action()) ?? ""));
    this.say(failed?.message ?? notice);
  }
}
