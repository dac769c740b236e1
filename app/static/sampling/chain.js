// @ts-check
/**
 * The rules of the sampling panel as a list in the order in which they are applied: chooses, adds, moves and removes
 * them, and shows the server's notes on surprising orders.
 */

import { chainOf } from "./choice.js";
import { newElement, setText } from "../shared/dom.js";
import { ConnectionLost, ServerError, postJson } from "../shared/transport.js";

/** @typedef {import("./choice.js").Rule} Rule */

export class Chain {
  /**
   * @param {HTMLElement} box
   * @param {import("./sampling.js").Sampling} panel
   */
  constructor(box, panel) {
    this.box = box;
    this.panel = panel;
    /** The chain whose steps are built, and the one whose notes are shown. */
    this.built = "";
    this.noted = "";
    box.innerHTML = `
      <ol class="sm-chain" aria-label="Rules, in the order in which they are applied"></ol>
      <button type="button" class="sm-add">Add a rule</button>
      <p class="sm-description sm-order" hidden>The temperature comes first, then the rules from top to bottom.</p>
      <div role="status"><ul class="sm-chain-notes"></ul></div>`;
    this.list = /** @type {HTMLElement} */ (box.querySelector("ol"));
    this.more = /** @type {HTMLButtonElement} */ (box.querySelector(".sm-add"));
    this.more.addEventListener("click", () => {
      this.change(this.choice.names.concat(this.choice.unused()[0].name));
      /** @type {HTMLElement | null} */ (this.list.querySelector("li:last-child select"))?.focus();
    });
  }

  get choice() {
    return this.panel.choice;
  }

  /** @param {string[]} names */
  change(names) {
    this.panel.choose(chainOf(names));
  }

  render() {
    const { choice } = this;
    if (this.built !== choice.rule) this.build();
    const several = choice.names.length > 1;
    this.more.hidden = choice.parts()[0].alone || !choice.unused().length;
    /** @type {HTMLElement} */ (this.box.querySelector(".sm-order")).hidden = !several;
    this.note();
  }

  /** Build one step for each rule of the chain. */
  build() {
    this.built = this.choice.rule;
    const names = this.choice.names;
    this.list.replaceChildren(...names.map((name, at) => this.newStep(name, at, names)));
    this.list.toggleAttribute("data-several", names.length > 1);
  }

  /**
   * @param {string} name
   * @param {number} at
   * @param {string[]} names
   */
  newStep(name, at, names) {
    const { choice } = this;
    const id = at ? `sm-rule-${at + 1}` : "sm-rule";
    const step = newElement("li", "", `
      <div class="sm-step"><label for="${id}">Rule${at ? ` ${at + 1}` : ""}</label> <span class="sm-moves"></span>
        <select id="${id}" aria-describedby="${id}-description"></select></div>
      <p class="sm-description" id="${id}-description"></p>`);
    const select = /** @type {HTMLSelectElement} */ (step.querySelector("select"));
    for (const rule of choice.rules.values()) {
      if (names.length > 1 && rule.alone) continue;
      // The closed select has room for the title only; the open list describes the other rules.
      const option = new Option(rule.name === name ? rule.title : `${rule.title}: ${rule.plain}`, rule.name);
      option.disabled = rule.name !== name && names.includes(rule.name);
      select.append(option);
    }
    select.value = name;
    select.addEventListener("change", () => {
      this.change(names.with(at, select.value));
      /** @type {HTMLElement | null} */ (this.list.querySelector(`#${id}`))?.focus(); // it was built anew
    });
    const rule = /** @type {Rule} */ (choice.rules.get(name));
    setText(step.querySelector(".sm-description"), rule.description);
    if (names.length > 1) {
      const moves = /** @type {HTMLElement} */ (step.querySelector(".sm-moves"));
      const add = (/** @type {string} */ sign, /** @type {string} */ what, /** @type {boolean} */ possible, /** @type {() => string[]} */ next) => {
        const button = document.createElement("button");
        Object.assign(button, { type: "button", textContent: sign, title: what, disabled: !possible });
        button.setAttribute("aria-label", `${what}: ${rule.title}`);
        button.addEventListener("click", () => {
          this.change(next());
          /** @type {HTMLElement | null} */ (this.list.querySelector(`[aria-label="${what}: ${rule.title}"]:enabled`) ?? this.list.querySelector("select"))?.focus();
        });
        moves.append(button);
      };
      add("↑", "Earlier", at > 0, () => swapped(names, at - 1));
      add("↓", "Later", at < names.length - 1, () => swapped(names, at));
      add("×", "Remove", true, () => names.toSpliced(at, 1));
    }
    return step;
  }

  /** Request the notes on the chain, if they are not shown already. */
  async note() {
    const { rule, names } = this.choice;
    if (this.noted === rule) return;
    this.noted = rule;
    let notes = [];
    try {
      if (names.length > 1) notes = (await postJson("/api/chain", { rule })).notes;
    } catch (error) {
      if (!(error instanceof ServerError || error instanceof ConnectionLost)) throw error;
      this.noted = ""; // request them again at the next change
    }
    if (this.choice.rule !== rule) return;
    this.box.querySelector(".sm-chain-notes")?.replaceChildren(
      ...notes.map((/** @type {string} */ text) => Object.assign(document.createElement("li"), { textContent: text })),
    );
  }
}

/**
 * The names with that at `at` and the next one exchanged.
 * @param {string[]} names
 * @param {number} at
 */
function swapped(names, at) {
  return names.with(at, names[at + 1]).with(at + 1, names[at]);
}
