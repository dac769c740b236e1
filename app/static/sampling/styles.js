// @ts-check
/**
 * The styles Precise, Balanced and Wild: the presets at the top of the sampling panel, as radio buttons, each with an
 * example.
 */

import { Examples } from "./examples.js";

export class Styles {
  /**
   * @param {HTMLElement} box
   * @param {import("./sampling.js").Sampling} panel
   */
  constructor(box, panel) {
    this.panel = panel;
    this.known = panel.catalogue.styles;
    box.innerHTML =
      `<div class="sm-styles" role="radiogroup" aria-label="Style">${this.known
        .map(({ name, description }) => `<label><input type="radio" name="sm-style" value="${name}" aria-label="${name}"
          aria-describedby="sm-style-${name}"><span class="sm-style"><b>${name}</b>
          <small id="sm-style-${name}">${description}</small><q class="sm-example" data-style="${name}"></q></span></label>`)
        .join("")}</div><p class="sm-description" id="sm-style-own">Your own setting: see For experts.</p>`;
    this.examples = new Examples(box, panel);
    this.inputs = [...box.querySelectorAll("input")];
    this.own = /** @type {HTMLElement} */ (box.querySelector("#sm-style-own"));
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
    this.own.hidden = present !== undefined;
    this.examples.later();
  }
}
