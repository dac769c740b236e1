// @ts-check
/**
 * The part of the stores tab on common phrases: lists the base stores with size, tokenizer and sources, says in which
 * documents they are used, weighs, adds and removes them.
 */

import { drawSlider, newElement, part, setText } from "../shared/dom.js";
import { getJson, postJson } from "../shared/transport.js";
import { field, plural, size, words } from "../shared/wording.js";

/**
 * A chosen store as the server lists it; one that cannot be read has no description. A damaged entry of the list can only be removed.
 * @typedef {{file: string, name: string, own: boolean, on: boolean, weight: number, problem?: string, damaged?: boolean, bytes?: number,
 *            tokenizer?: string, tokens?: number, documents?: number, ngrams?: number, orders?: [number, number],
 *            sources?: string[]}} BaseStore
 */

const OWN = "General English"; // the name of the store that comes with Polydraft

/** How a document names a store: the one that comes with Polydraft may be at another place later. @param {BaseStore} store */
const nameOf = ({ own, file }) => (own ? "default" : file);

export class BaseStores {
  /** @param {import("./stores.js").StoresTab} tab */
  constructor(tab) {
    this.tab = tab;
    this.find = tab.find;
    this.fixed = false;
    /** Changes that are sent one after the other, and how many of them are not answered yet. */
    this.sending = Promise.resolve();
    this.waiting = 0;
    /** The list that is being asked for: the next one is asked for after it, so that no older answer is drawn last. */
    this.refreshing = Promise.resolve();
    tab.onSubmit(".ps-base-add", async (form) => {
      await postJson("/api/base-stores/add", { file: field(form, "file").value.trim() });
      form.reset();
      tab.announce("Added the store.");
      await this.refresh();
    });
  }

  refresh() {
    return (this.refreshing = this.refreshing.catch(() => {}).then(() => this.drawList()));
  }

  async drawList() {
    const { stores, fixed } = /** @type {{stores: BaseStore[], fixed: boolean}} */ (await getJson("/api/base-stores"));
    if (this.waiting) return; // a newer change would be undone on the page; its answer draws the list
    this.fixed = fixed;
    const list = this.find(".ps-bases");
    const shown = /** @type {HTMLElement[]} */ ([...list.children]);
    if (shown.map(({ dataset }) => dataset.file).join("\n") !== stores.map(({ file }) => file).join("\n")) {
      list.replaceChildren(...stores.map((store) => this.newItem(store))); // else the items keep the focus
    }
    stores.forEach((store, i) => this.draw(/** @type {HTMLElement} */ (list.children[i]), store));
    this.find(".ps-base-fixed").hidden = !fixed;
    this.find(".ps-base-none").hidden = stores.length > 0;
    this.find(".ps-base-add").hidden = fixed;
  }

  /** @param {BaseStore} store */
  newItem(store) {
    const name = store.own ? OWN : store.name;
    const item = newElement("li", "ps-base", `
      <div class="ps-what"><h4></h4><p class="ps-facts"></p><p class="ps-facts ps-sources"></p><p class="ps-problem" hidden></p></div>
      <div class="ps-switches">
        <label class="ps-where">Use in <select>
          <option value="all">all documents</option>
          <option value="document">this document</option>
          <option value="">not in this one</option></select></label>
        <label class="ps-weight pd-option"><span>Weight <output></output></span> <input type="range" min="0.05" max="1" step="0.05"></label>
        <button type="button" class="ps-remove">Remove</button>
      </div>
      <p class="ps-error" role="alert" hidden></p>`, { h4: name });
    item.dataset.file = store.file;
    const { where, weight } = this.inputs(item);
    where.setAttribute("aria-label", `${name}: use in`);
    weight.setAttribute("aria-label", `${name}: weight`);
    where.addEventListener("change", () => this.change(item, store));
    weight.addEventListener("change", () => this.change(item, store));
    weight.addEventListener("input", () => drawWeight(item, Number(weight.value)));
    const remove = part(item, ".ps-remove");
    remove.setAttribute("aria-label", `Remove ${name}`);
    remove.addEventListener("click", () =>
      this.tab.act(async () => {
        await postJson("/api/base-stores/remove", { file: store.file });
        this.tab.announce(store.damaged ? "Removed the entry." : `Removed ${name}; its file is still there.`);
        await this.refresh();
        this.find(".ps-base-add input").focus();
      }, item),
    );
    return item;
  }

  /** @param {HTMLElement} item */
  inputs(item) {
    const where = part(item, "select");
    return { where, weight: part(item, "input") };
  }

  /** @param {HTMLElement} item @param {BaseStore} store */
  change(item, store) {
    const { where, weight } = this.inputs(item);
    const here = where.value === "document";
    const body = { file: store.file, on: where.value === "all", weight: Number(weight.value) };
    this.waiting++;
    this.sending = this.sending.then(() =>
      this.tab.act(async () => {
        try {
          await postJson("/api/base-stores/change", body);
          if (!body.on) await this.tab.documents.useStore(nameOf(store), here);
        } finally {
          this.waiting--;
          await this.refresh();
        }
      }, item),
    );
  }

  /** @param {HTMLElement} item @param {BaseStore} store */
  draw(item, store) {
    const { own, problem, bytes, tokenizer, tokens, documents, ngrams, orders, sources } = store;
    const { where, weight } = this.inputs(item);
    const here = this.tab.documents.current.stores.includes(nameOf(store));
    where.value = store.on ? "all" : here ? "document" : "";
    drawWeight(item, store.weight);
    for (const input of [where, weight]) /** @type {HTMLElement} */ (input.closest("label")).hidden = !!store.damaged;
    where.disabled = this.fixed;
    weight.disabled = this.fixed || !where.value;
    part(item, ".ps-remove").hidden = own || this.fixed;
    const known = bytes !== undefined && orders !== undefined;
    const facts = store.damaged ? "" : known ? `${plural(ngrams ?? 0, "n-gram")} of ${orders[0]} to ${orders[1]} tokens · ${size(bytes)} · tokenizer of ${tokenizer}` : store.file;
    setText(item.querySelector(".ps-facts"), facts);
    setText(item.querySelector(".ps-sources"), known ? `From ${plural(documents ?? 0, "document")}, ${words(tokens ?? 0)}: ${(sources ?? []).join(", ")}` : "");
    part(item, ".ps-facts").title = store.file;
    const box = part(item, ".ps-problem");
    box.hidden = !problem;
    box.textContent = problem ?? "";
  }
}

/** @param {HTMLElement} item @param {number} weight */
function drawWeight(item, weight) {
  setText(item.querySelector("output"), weight.toFixed(2));
  drawSlider(/** @type {HTMLInputElement} */ (item.querySelector("[type=range]")), weight, weight.toFixed(2));
}
