// @ts-check
/** The styles Precise, Balanced and Wild: the presets at the top of the sampling panel, as radio buttons. */

import { setText } from "../shared/dom.js";

export class Styles {
  /**
   * @param {HTMLElement} box
   * @param {import("./sampling.js").Sampling} panel
   */
  constructor(box, panel) {
    this.panel = panel;
    this.known = panel.catalogue.styles;
    box.innerHTML =
      `<div class="sm-styles" role="radiogroup" aria-label="Style" aria-describedby="sm-style-description">${this.known
        .map(({ name }) => `<label><input type="radio" name="sm-style" value="${name}"><span>${name}</span></label>`)
        .join("")}</div><p class="sm-description" id="sm-style-description"></p>`;
    this.inputs = [...box.querySelectorAll("input")];
    this.description = /** @type {HTMLElement} */ (box.querySelector(".sm-description"));
    box.addEventListener("change", (event) => {
      const { value } = /** @type {HTMLInputElement} */ (event.target);
      panel.presets.take(/** @type {import("./choice.js").Preset} */ (panel.catalogue.presets.find(({ name }) => name === value)));
    });
  }

  /** The style that equals the present settings, if there is one. */
  present() {
    const { presets } = this.panel;
    return this.known.find(({ name }) => presets.isAt(/** @type {any} */ (presets.known.find((preset) => preset.name === name))));
  }

  render() {
    const present = this.present();
    for (const input of this.inputs) input.checked = input.value === present?.name;
    setText(this.description, present?.description ?? "Your own setting: see For experts.");
  }
}
