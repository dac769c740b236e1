// @ts-check
/**
 * The tab of personal stores: lists stores, creates and deletes them, switches them on and off, adds phrases and forgets
 * texts. adding.js adds files, searching.js searches, training.js trains the model on a store, base_stores.js lists the
 * stores of common phrases. Loaded when the tab is first opened. After every action the list is
 * requested from the server again.
 */

import { Adding } from "./adding.js";
import { BaseStores } from "./base_stores.js";
import { drawNumbers } from "./numbers.js";
import { finder, keepFocus, newButton, newElement, part, setText } from "../shared/dom.js";
import { Searching } from "./searching.js";
import { Training } from "./training.js";
import { PAGE, getJson, postJson } from "../shared/transport.js";
import { ago, clearError, field, messageOf, originName, plural, showError, words } from "../shared/wording.js";

/**
 * A store as the server lists it; one that cannot be used has only a name and a problem.
 * @typedef {{origin: string, documents: number, tokens: number, added: string}} Origin
 * @typedef {{store: string, problem?: string, enabled: boolean, learning: boolean, bytes: number, changed: string,
 *            tokens: number, origins: Origin[], unlisted: number, senders: string[],
 *            folders: Folder[], adapter: import("./training.js").Adapter | null}} Store
 *
 * A folder that `polydraft ngram add` keeps in step, with the reasons of files that could not be read whole.
 * @typedef {{path: string, excluded: string[], files: number, forgotten: number, problems: Record<string, string>}} Folder
 *
 * What the tab needs of the page.
 * @typedef {{learning: import("../editor/learning.js").Learning, pace: import("../editor/pace.js").Pace,
 *            documents: import("../documents/documents.js").Documents}} Page
 */

const FIRST = "me"; // the store that is created for the first files

/**
 * Build the tab inside the page.
 * @param {HTMLElement} root
 * @param {Page} page
 */
export async function open(root, page) {
  const here = (/** @type {string} */ name) => new URL(name, import.meta.url).href;
  const [markup] = await Promise.all([fetch(here("stores.html")).then((r) => r.text()), styled(here("stores.css"))]);
  root.querySelector("#pd-stores")?.remove(); // left by an attempt that failed
  root.querySelector(".pd-desk")?.insertAdjacentHTML("afterend", markup);
  return new StoresTab(part(root, "#pd-stores"), page);
}

/** @param {string} href */
function styled(href) {
  return new Promise((done, failed) => {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href, onload: done, onerror: failed });
    document.head.append(link);
  });
}

export class StoresTab {
  /** @param {HTMLElement} root @param {Page} page */
  constructor(root, { learning, pace, documents }) {
    this.root = root;
    this.pace = pace;
    this.learning = learning;
    this.documents = documents;
    this.find = finder(root);
    /** @type {Store[]} */
    this.stores = [];
    this.adding = new Adding(this);
    this.searching = new Searching(this);
    this.training = new Training(this);
    this.bases = new BaseStores(this);
    this.drawNumbers = drawNumbers(root, pace);
    this.find(".ps-common-open").addEventListener("click", () => this.showCommon(true));
    this.find(".ps-back").addEventListener("click", () => this.showCommon(false));
    /** Switches whose change the server has not confirmed: an older list must not turn them back. @type {Set<Element>} */
    this.switching = new Set();
    /** What can be undone, newest last: the name, and the tickets by store. @type {{name: string, tickets: Map<string, string>}[]} */
    this.forgotten = [];
    /** The list that is being asked for: the next one is asked for after it, so that no older answer is drawn last. */
    this.refreshing = Promise.resolve();

    const undo = this.find(".ps-forgotten");
    undo.querySelector("button")?.addEventListener("click", () => this.act(() => this.undo(), undo));
    addEventListener("pagehide", () => {
      this.forgotten.length = 0; // the server drops it too
      this.drawForgotten();
    });
    this.onSubmit(".ps-new", async (form) => {
      const store = field(form, "store").value.trim();
      await postJson("/api/stores/create", { store });
      form.reset();
      this.announce(`Created the collection ${store}.`);
      await this.refresh();
      this.into.value = store;
    });
    this.onSubmit(".ps-phrase", async (form) => {
      const text = field(form, "text").value.trim();
      const store = await this.target();
      await postJson("/api/stores/add-phrase", { store, text });
      form.reset();
      this.report(`Added “${text}” to ${store}; drafts will use it from now on.`, []);
      await this.refresh();
    });
    this.onSubmit(".ps-find", (form) => this.searching.search(field(form, "text").value.trim()));
    addEventListener("focus", () => root.checkVisibility() && this.refresh().catch(() => {}));
  }

  /** @returns {HTMLSelectElement} */
  get into() {
    return this.find("#ps-into");
  }

  /** @param {string} selector @param {(form: HTMLFormElement) => Promise<void>} action */
  onSubmit(selector, action) {
    const form = /** @type {HTMLFormElement} */ (this.find(selector));
    form.addEventListener("input", () => clearError(form));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.act(() => action(form), form);
    });
  }

  /**
   * Run an action. If it fails, show the error at `place` until the input changes or the action is tried again.
   * @param {() => Promise<void>} action
   * @param {HTMLElement} place the form, the store or the field for files
   */
  async act(action, place) {
    clearError(place);
    try {
      await action();
    } catch (error) {
      showError(place, messageOf(error));
    }
  }

  /** Show the page of common phrases, or that of the writer's own collections. @param {boolean} on */
  showCommon(on) {
    for (const column of /** @type {NodeListOf<HTMLElement>} */ (this.root.querySelectorAll(".ps-column"))) {
      column.hidden = column.matches(".ps-common") !== on;
    }
    this.root.scrollTop = 0;
    this.find(on ? ".ps-back" : ".ps-common-open").focus();
  }

  /** @param {string} text for screen readers */
  announce(text) {
    this.find(".ps-status").textContent = text;
  }

  // ---------------------------------------------------------------- the list

  refresh() {
    return (this.refreshing = this.refreshing.catch(() => {}).then(() => this.drawList()));
  }

  async drawList() {
    this.drawNumbers();
    const listed = await getJson("/api/stores");
    this.stores = listed.stores;
    this.training.follow(listed.trainings);
    const list = this.find(".ps-list");
    const old = new Map([...list.children].map((item) => [/** @type {HTMLElement} */ (item).dataset.store, item]));
    for (const [i, store] of this.stores.entries()) {
      let item = /** @type {HTMLElement | undefined} */ (old.get(store.store));
      if (item && "problem" in item.dataset !== "problem" in store) item.remove(), (item = undefined);
      item ??= "problem" in store ? this.newProblem(store) : this.newStore(store);
      old.delete(store.store);
      if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null);
      if ("problem" in store) setText(item.querySelector(".ps-problem"), store.problem ?? "");
      else this.draw(item, store);
    }
    for (const item of old.values()) item.remove();
    this.find(".ps-none").hidden = this.stores.length > 0;

    const usable = this.stores.filter((store) => !("problem" in store)).map((store) => store.store);
    const names = usable.length ? usable : [FIRST];
    const chosen = this.into.value;
    this.into.replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.includes(chosen)) this.into.value = chosen;
    this.find(".ps-into").hidden = names.length < 2;
    await this.bases.refresh();
  }

  /** @param {Store} store */
  newStore({ store }) {
    const item = newElement("li", "ps-store", `
      <div class="ps-what"><h3></h3><p class="ps-facts"></p></div>
      <div class="ps-switches">
        <label><input type="checkbox" role="switch" class="ps-on"> Use in drafts</label>
        <label><input type="checkbox" role="switch" class="ps-learns"> Learn as I write</label>
      </div>
      <p class="ps-error" role="alert" hidden></p>
      <details>
        <summary></summary>
        <ul></ul>
        <p class="ps-more" hidden></p>
        <ul class="ps-folders"></ul>
        <form class="ps-senders">
          <label>Your names and addresses in mails and chats
            <input name="senders" maxlength="2000" autocomplete="off" placeholder="Ann Lee, ann@example.org"></label>
          <button>Save</button>
          <small>Of files that you add later, only what these wrote is learned. Without names: mails of everyone.</small>
        </form>
        <button type="button" class="ps-delete">Delete this collection</button>
      </details>`, { h3: store });
    item.dataset.store = store;
    item.querySelector(".ps-error")?.before(this.training.newPart(store));
    const on = /** @type {HTMLInputElement} */ (item.querySelector(".ps-on"));
    const learns = /** @type {HTMLInputElement} */ (item.querySelector(".ps-learns"));
    on.setAttribute("aria-label", `${store}: use in drafts`);
    learns.setAttribute("aria-label", `${store}: learn as I write`);
    const senders = /** @type {HTMLFormElement} */ (item.querySelector(".ps-senders"));
    senders.addEventListener("submit", (event) => {
      event.preventDefault();
      this.act(() => this.setSenders(store, field(senders, "senders").value), item);
    });
    on.addEventListener("change", () => this.switch("switch", store, on, item));
    learns.addEventListener("change", () => this.switch("switch-learning", store, learns, item));
    item.querySelector(".ps-delete")?.addEventListener("click", () => this.act(() => this.delete(store), item));
    return item;
  }

  /** @param {Store} store */
  newProblem({ store }) {
    const item = newElement("li", "ps-store", `
      <div class="ps-what"><h3></h3><p class="ps-problem"></p></div>
      <button type="button" class="ps-delete">Delete this collection</button>
      <p class="ps-error" role="alert" hidden></p>`, { h3: store });
    Object.assign(item.dataset, { store, problem: "" });
    item.querySelector(".ps-delete")?.addEventListener("click", () => this.act(() => this.delete(store), item));
    return item;
  }

  /** @param {HTMLElement} item @param {Store} row */
  draw(item, row) {
    const { store, enabled, learning, changed, tokens, origins, unlisted, folders, senders } = row;
    const facts = part(item, ".ps-facts");
    facts.textContent = `${words(tokens)} · changed ${ago(changed)}`;
    facts.title = new Date(changed).toLocaleString();
    this.training.draw(part(item, ".ps-style"), row);
    const on = /** @type {HTMLInputElement} */ (item.querySelector(".ps-on"));
    const learns = /** @type {HTMLInputElement} */ (item.querySelector(".ps-learns"));
    if (!this.switching.has(on)) on.checked = enabled;
    if (!this.switching.has(learns)) learns.checked = learning;
    learns.disabled = !enabled;
    /** @type {HTMLElement} */ (learns.parentElement).title = enabled
      ? "Drafts that you accept and paragraphs that you finish are added. Incognito pauses this in a tab."
      : "Switch on “Use in drafts” first.";
    setText(item.querySelector("summary"), origins.length ? plural(origins.length + unlisted, "source") : "Empty");
    const list = part(item, "ul");
    const summary = () => part(item, "summary");
    keepFocus(list, summary, () => list.replaceChildren(
      ...origins.map(({ origin, tokens, added }) => {
        const name = originName(origin);
        const texts = { ".ps-name": name, ".ps-facts": `${words(tokens)}, ${ago(added)}` };
        const row = newElement("li", "ps-origin", `<span class="ps-name"></span><span class="ps-facts"></span>`, texts);
        row.dataset.key = origin;
        part(row, ".ps-name").title = origin;
        const forget = () => this.act(() => this.forget([store], "document", origin, name), item);
        row.append(newButton("Forget", forget, { label: `Forget ${name}` }));
        return row;
      }),
    ));
    const more = part(item, ".ps-more");
    more.hidden = !unlisted;
    more.textContent = `And ${unlisted} older ones.`;
    item.querySelector(".ps-folders")?.replaceChildren(...folders.map(drawFolder));
    const names = field(/** @type {HTMLFormElement} */ (item.querySelector(".ps-senders")), "senders");
    if (document.activeElement !== names) names.value = senders.join(", ");
  }

  /** @param {string} store @param {string} names with commas between them */
  async setSenders(store, names) {
    const senders = names.split(",").map((name) => name.trim()).filter(Boolean);
    await postJson("/api/stores/senders", { store, senders });
    this.announce(senders.length ? `${store} learns what ${senders.join(" and ")} wrote.` : `${store} learns the mails of everyone.`);
    await this.refresh();
  }

  /**
   * @param {string} action
   * @param {string} store
   * @param {HTMLInputElement} box
   * @param {HTMLElement} item
   */
  switch(action, store, box, item) {
    return this.act(async () => {
      const on = box.checked;
      this.switching.add(box);
      try {
        await postJson(`/api/stores/${action}`, { store, on });
      } finally {
        this.switching.delete(box);
        await this.refresh();
      }
      await this.learning.refresh({ anew: true });
    }, item);
  }

  /** @param {string} store */
  async delete(store) {
    const confirmed = await this.confirm(
      `Delete the collection ${store}?`, "Its texts and counts, and what the model learned from them, are overwritten and removed. This cannot be undone.", "Delete",
    );
    if (!confirmed) return;
    await postJson("/api/stores/delete", { store });
    this.announce(`Deleted the collection ${store}.`);
    this.learning.removed();
    await this.refresh();
    await this.learning.refresh({ anew: true });
    this.find("#ps-name").focus();
  }

  /**
   * @param {string[]} stores
   * @param {"document" | "phrase"} kind
   * @param {string} what
   * @param {string} name as it is shown
   */
  async forget(stores, kind, what, name) {
    const post = (/** @type {string} */ store, /** @type {object} */ how) =>
      postJson(`/api/stores/forget-${kind}`, { store, [kind]: what, tab: PAGE, ...how });
    const extents = await Promise.all(stores.map((store) => post(store, { dry: true })));
    const sum = (/** @type {string} */ count) => extents.reduce((all, extent) => all + extent[count], 0);
    const [passages, characters] = [plural(sum("passages"), "passage"), plural(sum("characters"), "character")];
    const extent = kind === "phrase"
      ? `${plural(sum("occurrences"), "place")} with ${characters}, in ${passages} of ${stores.join(", ")},`
      : `${passages} of ${stores.join(", ")} with ${characters}`;
    const text = `${extent} will be removed, also from the counts. `
      + (extents.every(({ undo }) => undo) ? "You can undo this until you close the page." : "This cannot be undone: it is too much text.");
    if (!(await this.confirm(`Forget ${name}?`, text, "Forget"))) return;
    let [documents, removedOccurrences, complete] = [0, 0, true];
    /** @type {string[]} */
    const unlearned = [];
    const tickets = new Map();
    for (const store of stores) {
      const done = await post(store, {});
      documents += done.documents;
      removedOccurrences += done.occurrences;
      complete &&= done.complete;
      if (done.adapter) unlearned.push(store);
      if (done.ticket) tickets.set(store, done.ticket);
    }
    this.learning.removed();
    if (tickets.size) this.forgotten.push({ name, tickets });
    this.drawForgotten();
    const removed = kind === "document" ? plural(documents, "document") : plural(removedOccurrences, "place");
    const rest = complete ? "" : " Another program has the collection open, or the disk is full; the last traces are removed when it is next opened.";
    const again = unlearned.map((store) => ` What the model had learned from ${store} is deleted; it learns again from what is left.`);
    this.report(`Forgot ${name}: removed ${removed}.${again.join("")}${rest}`, []);
    await this.refresh();
    await this.searching.again();
  }

  /** Undo what was forgotten last. */
  async undo() {
    const last = this.forgotten[this.forgotten.length - 1];
    let learned = false;
    for (const [store, ticket] of last.tickets) {
      const done = await postJson("/api/stores/undo-forget", { ticket });
      learned ||= done.adapter;
      last.tickets.delete(store);
    }
    this.forgotten.pop();
    this.drawForgotten();
    this.report(`${last.name} is back${learned ? ", with what the model had learned" : ""}.`, []);
    await this.refresh();
    await this.searching.again();
  }

  drawForgotten() {
    const box = this.find(".ps-forgotten");
    clearError(box);
    const last = this.forgotten[this.forgotten.length - 1];
    if (!last && box.contains(document.activeElement)) this.find("#ps-text").focus();
    box.hidden = !last;
    setText(box.querySelector("p"), last ? `${last.name} was forgotten. You can undo this until you close the page.` : "");
  }

  /**
   * @param {string} question
   * @param {string} text
   * @param {string} yes
   * @returns {Promise<boolean>}
   */
  confirm(question, text, yes) {
    const dialog = /** @type {HTMLDialogElement} */ (this.find(".ps-sure"));
    setText(dialog.querySelector("h2"), question);
    setText(dialog.querySelector("p"), text);
    setText(dialog.querySelector("button[value=yes]"), yes);
    dialog.returnValue = "";
    dialog.showModal();
    part(dialog, ".ps-no").focus();
    return new Promise((answer) => {
      dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true });
    });
  }

  /** The store to add to. Creates the first one. */
  async target() {
    const store = this.into.value || FIRST;
    if (!this.stores.some((known) => known.store === store)) await postJson("/api/stores/create", { store });
    return store;
  }

  /**
   * Show the result of an action, and its problems.
   * @param {string} message
   * @param {{name: string, reason: string}[]} damage
   * @param {boolean} failed
   */
  report(message, damage, failed = damage.length > 0) {
    const box = this.find(".ps-report");
    box.hidden = false;
    box.classList.toggle("ps-failed", failed);
    setText(box.querySelector("p"), message);
    box.querySelector("ul")?.replaceChildren(
      ...damage.map(({ name, reason }) => newElement("li", "", "<b></b> <span></span>", { b: name, span: reason })),
    );
    this.announce([message, ...damage.map(({ name, reason }) => `${name}: ${reason}`)].join(" "));
    box.scrollIntoView({ block: "nearest" });
  }
}

/** @param {Folder} folder */
function drawFolder({ path, excluded, files, forgotten, problems }) {
  const without = excluded.length ? `, without ${excluded.join(", ")}` : "";
  const left = forgotten ? `; ${forgotten} of them forgotten` : "";
  const item = newElement("li", "ps-folder", "<p></p><ul></ul>", { p: `In step with ${path}${without}: ${plural(files, "file")}${left}.` });
  item.querySelector("ul")?.replaceChildren(...Object.entries(problems).map(
    ([origin, problem]) => newElement("li", "", "<span></span>", { span: `${originName(origin)}: ${problem}` })));
  return item;
}
