// @ts-check
/**
 * The part of the sampling panel on speculation: how greedy and sampled drafts get several tokens per pass, the measured
 * speedup, and, on demand, how each token was produced. Shown in those modes only.
 */

import { problem } from "./choice.js";
import { finder, setText } from "../shared/dom.js";
import { drawControl, newControl } from "./sliders.js";

/**
 * @typedef {import("./choice.js").Control} Control
 * @typedef {{modes: string[], ways: {name: string, description: string, controls: Control[]}[],
 *            drafters: {name: string, description: string, missing: string}[], arc_missing: string}} Offered
 * @typedef {{accept_length: number, speedup: number, notice: string | null}} Figures
 */

const NAMES = { off: "Off", lossless: "Lossless", arc: "ARC" };
const DRAFTERS = {
  ngram: "N-grams",
  suffix: "Repeated text",
  superposed: "Superposed drafts",
  model: "A draft model",
  eagle3: "EAGLE-3",
};

export class Speculation {
  /**
   * @param {HTMLElement} box
   * @param {Offered} offered
   * @param {import("./sampling.js").Sampling} panel
   */
  constructor(box, offered, panel) {
    this.box = box;
    /** @type {(selector: string) => any} */
    this.find = finder(box);
    this.offered = offered;
    this.panel = panel;
    this.ways = new Map(offered.ways.map((way) => [way.name, way]));
    this.way = "off";
    this.drafter = offered.drafters[0].name;
    /** The values of the controls, shared by all ways. @type {Record<string, number>} */
    this.values = this.usual();
    this.coloured = false;
    /** Why the server refused the latest choice; "" once there is another one. */
    this.refusal = "";
    /** The way whose controls are built. */
    this.built = "";
    const option = (/** @type {string} */ name, /** @type {string} */ title) => `<option value="${name}">${title}</option>`;
    box.innerHTML = `
      <div class="sm-pair">
        <div><label for="sm-way">Speculation</label> <select id="sm-way">${offered.ways.map(({ name }) => option(name, /** @type {any} */ (NAMES)[name] ?? name)).join("")}</select></div>
        <div class="sp-by"><label for="sm-drafter">Proposals by</label> <select id="sm-drafter">${offered.drafters.map(({ name }) => option(name, /** @type {any} */ (DRAFTERS)[name] ?? name)).join("")}</select></div>
      </div>
      <p class="sm-description sp-description"></p>
      <p class="sp-refused" role="status"></p>
      <p class="sm-description sp-missing"></p>
      <div class="sm-controls"></div>
      <div class="sp-line">
        <label><input type="checkbox" id="sm-colour"> Colour the tokens</label>
        <span class="sp-figures" aria-live="off"></span>
      </div>
      <p class="sp-key" hidden><i class="pd-accepted">Accepted</i> <i class="pd-tolerated">Accepted by tolerance</i> <i class="pd-corrected">Corrected</i> <i class="pd-bonus">Bonus</i></p>
      <p class="sp-notice" role="status" hidden></p>`;
    this.find("#sm-way").addEventListener("change", (/** @type {any} */ event) => {
      this.way = event.target.value;
      this.panel.changed();
    });
    this.find("#sm-drafter").addEventListener("change", (/** @type {any} */ event) => {
      this.drafter = event.target.value;
      this.panel.changed();
    });
    this.find("#sm-colour").addEventListener("change", (/** @type {any} */ event) => {
      this.coloured = event.target.checked;
      this.render();
      this.panel.page.drawList();
    });
    const arc = /** @type {any} */ (this.find('#sm-way [value="arc"]'));
    if (offered.arc_missing && arc) arc.disabled = true;
    for (const { name, missing } of offered.drafters) {
      Object.assign(this.find(`#sm-drafter [value="${name}"]`), { disabled: Boolean(missing), title: missing });
    }
    panel.root.addEventListener("pd-refused", (event) => {
      const { setting, message } = /** @type {CustomEvent<{setting: string, message: string}>} */ (event).detail;
      if (setting === "speculation") this.refused(message);
    });
    panel.root.addEventListener("pd-figures", (event) => this.show(/** @type {CustomEvent<Figures | null>} */ (event).detail));
  }

  usual() {
    return Object.fromEntries(this.offered.ways.flatMap(({ controls }) => controls.map((c) => [c.name, Number(c.default)])));
  }

  /** Whether the present mode speculates. */
  isOn() {
    return this.way !== "off" && this.offered.modes.includes(this.panel.choice.mode);
  }

  controls() {
    return this.ways.get(this.way)?.controls ?? [];
  }

  /** The fields of a request; {} without speculation. */
  requestFields() {
    if (!this.isOn()) return {};
    const values = Object.fromEntries(this.controls().map(({ name }) => [name, this.values[name]]));
    return { speculation: { mode: this.way, drafter: this.drafter, values } };
  }

  reset() {
    this.way = "off";
    this.values = this.usual();
  }

  /**
   * The server cannot speculate with these settings: switch speculation off, so that there are drafts, now and at the next
   * visit, and say why.
   * @param {string} why
   */
  refused(why) {
    this.way = "off";
    this.panel.changed();
    this.refusal = `Speculation is off. ${why}`;
    this.render();
    if (!this.box.checkVisibility()) this.panel.page.toast(this.refusal, { long: true });
  }

  /** The values to store for the next visit. */
  kept() {
    return this.way === "off" ? undefined : { way: this.way, drafter: this.drafter, values: this.values };
  }

  /** @param {any} kept by the last visit, or in a link */
  takeOver(kept) {
    if (!kept || !this.ways.has(kept.way) || (kept.way === "arc" && this.offered.arc_missing)) return;
    this.way = kept.way;
    if (this.offered.drafters.some(({ name, missing }) => name === kept.drafter && !missing)) this.drafter = kept.drafter;
    for (const control of this.controls()) {
      if (!problem(control, kept.values?.[control.name])) this.values[control.name] = kept.values[control.name];
    }
  }

  render() {
    this.box.hidden = !this.offered.modes.includes(this.panel.choice.mode);
    const on = this.isOn();
    this.panel.root.toggleAttribute("data-coloured", on && this.coloured);
    if (this.box.hidden) return;
    this.find("#sm-way").value = this.way;
    this.find("#sm-drafter").value = this.drafter;
    this.find(".sp-by").hidden = !on;
    this.find(".sp-line").hidden = !on;
    this.find(".sp-key").hidden = !(on && this.coloured);
    this.find("#sm-drafter").title = this.offered.drafters.find(({ name }) => name === this.drafter)?.description ?? "";
    const { arc_missing: arc, drafters } = this.offered;
    const missing = drafters.filter((drafter) => drafter.missing).map((drafter) => `${/** @type {any} */ (DRAFTERS)[drafter.name]}: ${drafter.missing}`);
    setText(this.find(".sp-refused"), this.refusal);
    setText(this.find(".sp-missing"), [arc ? `ARC cannot be used yet: ${arc}` : "", ...(on ? missing : [])].filter(Boolean).join(" "));
    setText(this.find(".sp-description"), on ? this.ways.get(this.way)?.description ?? "" : "");
    const box = this.find(".sm-controls");
    if (this.built !== this.way) {
      this.built = this.way;
      box.replaceChildren(
        ...this.controls().map((control) =>
          newControl("speculation", control, (value) => {
            this.values[control.name] = value;
            this.panel.changed();
          }),
        ),
      );
    }
    for (const control of this.controls()) {
      const shown = control.name === "tree_size" && !this.values.tree_size ? "Auto" : undefined;
      drawControl(box, control, this.values[control.name], shown);
    }
    if (!on) this.show(null);
  }

  /** @param {Figures | null} figures */
  show(figures) {
    const words = figures?.accept_length
      ? `<b>${figures.accept_length.toFixed(2)}</b> tokens per pass · <b>${figures.speedup.toFixed(2)}×</b> as fast`
      : "";
    const box = this.find(".sp-figures");
    if (box.innerHTML !== words) box.innerHTML = words;
    box.title = "How many tokens each pass adds to a draft, and how much faster that is than one token per pass on this machine.";
    const notice = this.find(".sp-notice");
    notice.hidden = !figures?.notice;
    setText(notice, figures?.notice ?? "");
  }
}
