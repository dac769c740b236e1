// @ts-check
/**
 * The panel of the button “Documents”: the list of documents, the bin, files, and where documents are kept. Esc, a click
 * outside, and the button close it.
 */

import { titleOf } from "./document.js";
import { DocumentRows, twoClicks } from "./document_rows.js";
import { setAside, whereKept } from "./file_documents.js";
import { exportAll, exportText } from "./files.js";
import { setUpOpeningFiles } from "./opening_files.js";
import { dialogIsOpen, disclose, finder, keepFocus, newButton, newElement, on, onDo, part } from "../shared/dom.js";

/** @typedef {import("./documents.js").Documents} Documents */

export class DocumentsPanel {
  #root;
  #documents;
  #textarea;
  #toast;
  #find;
  #panel;
  #button;
  #rows;

  /**
   * @param {HTMLElement} root
   * @param {Documents} documents
   * @param {import("../editor/start.js").Editor} editor
   */
  constructor(root, documents, { textarea, notices }) {
    this.#root = root;
    this.#documents = documents;
    this.#textarea = textarea;
    this.#toast = notices.toast.bind(notices);
    this.#find = finder(root);
    this.#panel = this.#find("#pd-documents");
    this.#button = /** @type {HTMLButtonElement} */ (this.#find("[data-do=documents]"));
    const shared = {
      run: (/** @type {() => Promise<unknown>} */ action) => this.#run(action),
      toast: this.#toast,
      close: () => this.#close(),
      draw: () => this.#draw(),
    };
    this.#rows = new DocumentRows(documents, shared);
    setUpMenu(this.#find);
    setUpOpeningFiles(root, documents, shared);
    this.#connectPanel();
    this.#connectButtons();
    this.#connectPlaces();
    this.#followTab();
    root.addEventListener("pd-documents", () => this.#run(() => this.#draw()));
  }

  /** Run an action and show its error, if it fails, as a toast. @param {() => Promise<unknown>} action */
  async #run(action) {
    try {
      await action();
    } catch (error) {
      this.#toast(error instanceof Error ? error.message : String(error), { long: true });
    }
  }

  #open() {
    disclose(this.#button, true);
    return this.#run(() => this.#draw());
  }

  #close({ focus = true } = {}) {
    disclose(this.#button, false);
    if (focus) this.#textarea.focus();
  }

  #connectPanel() {
    const panel = this.#panel;
    // In the capture phase, before the text uses Esc to dismiss drafts. A text field in the panel handles Esc itself.
    addEventListener("keydown", (event) => {
      const { key, target } = event;
      const inField = target instanceof HTMLInputElement && target.type === "text" && panel.contains(target);
      if (key !== "Escape" || panel.hidden || inField || dialogIsOpen()) return;
      event.preventDefault();
      event.stopPropagation();
      this.#close();
    }, true);
    document.addEventListener("pointerdown", ({ target }) => {
      const inside = target instanceof Node && (panel.contains(target) || this.#button.contains(target));
      if (!inside && !panel.hidden) this.#close({ focus: false });
    });
  }

  #connectButtons() {
    const documents = this.#documents;
    /** @type {Record<string, () => Promise<unknown> | void>} */
    const actions = {
      documents: () => (this.#panel.hidden ? this.#open() : this.#close()),
      new: async () => {
        await documents.create();
        this.#close();
      },
      "close-documents": () => this.#close(),
      download: () => this.#save("txt"),
      "download-md": () => this.#save("md"),
      "export-all": async () => {
        const { documents: all, problems } = await documents.all();
        this.#toast([`Saved as “${exportAll(all)}”.`, ...problems].join(" "), { long: problems.length > 0 });
      },
      "copy-elsewhere": () => documents.openCopy(this.#find(".pd-elsewhere").dataset.id ?? ""),
      "list-elsewhere": () => this.#open(),
    };
    const run = (/** @type {() => Promise<unknown> | void} */ action) => () => this.#run(async () => action());
    onDo(this.#root, Object.fromEntries(Object.entries(actions).map(([name, action]) => [name, run(action)])));
    twoClicks(this.#find("[data-do=empty-bin]"), (action) => this.#run(action), async () => {
      const rows = await documents.list();
      await documents.stored.remove(rows.filter(({ binned }) => binned !== null).map(({ id }) => id));
    });
  }

  /** @param {"txt" | "md"} kind */
  #save(kind) {
    const { value } = this.#textarea;
    if (!value) return this.#toast("There is nothing to save yet.");
    return this.#toast(`Saved as “${exportText({ title: this.#documents.title, opening: "" }, value, kind)}”.`);
  }

  async #draw() {
    if (this.#panel.hidden) return;
    const find = this.#find;
    const rows = await this.#documents.list();
    const here = rows.filter(({ binned }) => binned === null);
    const binned = rows.filter(({ binned }) => binned !== null);
    const first = () => find(".dc-first [data-do=new]");
    keepFocus(find(".dc-list"), first, () => this.#rows.showDocuments(find(".dc-list"), here));
    keepFocus(find(".dc-binned"), first, () => this.#rows.showBin(find(".dc-binned"), binned));
    find(".dc-none").hidden = here.length > 0;
    const bin = find(".dc-bin");
    if (!binned.length && bin.contains(document.activeElement)) first().focus();
    bin.hidden = binned.length === 0;
    find(".dc-bin summary").textContent = `Bin (${binned.length})`;
    const { where, folder, problems } = await whereKept();
    const unmoved = this.#documents.stored.problems.map((message) => ({ message, note: "" }));
    keepFocus(find(".dc-problems"), first, () =>
      find(".dc-problems").replaceChildren(...[...problems, ...unmoved].map((problem) => this.#problemItem(problem))));
    for (const radio of this.#places()) radio.checked = radio.value === where;
    find(".dc-folder").textContent = folder;
  }

  /** @param {import("./file_documents.js").Problem} problem */
  #problemItem({ message, note }) {
    const li = newElement("li", "", "<span></span>", { span: message });
    li.dataset.key = note;
    const remove = () => this.#run(async () => {
      await setAside(note);
      this.#documents.stored.listChanged();
    });
    if (note) li.append(newButton("Remove", remove, { label: `Remove: ${message}` }));
    return li;
  }

  /** @returns {NodeListOf<HTMLInputElement>} */
  #places() {
    return this.#panel.querySelectorAll("[name=dc-where]");
  }

  #connectPlaces() {
    for (const radio of this.#places()) {
      radio.addEventListener("change", () => this.#run(async () => {
        try {
          await this.#documents.moveTo(/** @type {"browser" | "files"} */ (radio.value));
          const { where, folder } = await whereKept();
          const said = where === "files" ? `Your documents are now files in ${folder}.` : "Your documents are now kept in this browser.";
          this.#toast(said, { long: true });
        } finally {
          await this.#draw();
        }
      }));
    }
  }

  /** The title of this tab, and the sentence in the place of a document that another tab has open. */
  #followTab() {
    const documents = this.#documents, elsewhere = this.#find(".pd-elsewhere");
    this.#root.addEventListener("pd-document", () => {
      document.title = this.#textarea.value || documents.current.title ? `${documents.title} – Polydraft` : "Polydraft";
    });
    on(this.#root, "pd-elsewhere", (document) => {
      elsewhere.hidden = !document;
      this.#root.toggleAttribute("data-elsewhere", Boolean(document)); // an empty text is not an invitation to write then
      if (!document) return;
      elsewhere.dataset.id = document.id;
      part(elsewhere, "b").textContent = `“${titleOf(document)}” is open in another tab.`;
      this.#close();
    });
  }
}

/** On a small screen the tools are in a menu, which closes after a choice. @param {ReturnType<typeof finder>} find */
function setUpMenu(find) {
  const menu = /** @type {HTMLButtonElement} */ (find(".pd-menu")), tools = find(".pd-tools");
  const unfold = (/** @type {boolean} */ open) => menu.setAttribute("aria-expanded", String(open));
  menu.addEventListener("click", () => unfold(menu.getAttribute("aria-expanded") !== "true"));
  tools.addEventListener("click", () => unfold(false));
  document.addEventListener("pointerdown", ({ target }) => {
    if (target instanceof Node && !menu.contains(target) && !tools.contains(target)) unfold(false);
  });
}
