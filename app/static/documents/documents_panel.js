// @ts-check
/** The panel of the button “Documents”: the list of documents, the bin, files, and where documents are kept. */

import { MOST_TITLE, titleOf } from "./document.js";
import { linkTo } from "./documents.js";
import { finder, keepFocus, newElement, setText } from "../shared/dom.js";
import { setAside, whereKept } from "./file_documents.js";
import { exportAll, exportText, readFile } from "./files.js";
import { Popup } from "../shared/popup.js";
import { ago, plural } from "../shared/wording.js";

/** @typedef {import("./documents.js").Documents} Documents */
/** @typedef {Awaited<ReturnType<Documents["list"]>>[number]} Row */

const SURE_FOR = 4000; // ms in which a second click deletes
const MONTH = 30 * 86_400_000; // ms
const PEN = "M4 20h4L19 9l-4-4L4 16z";
const BIN = "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13";

/**
 * @param {HTMLElement} root
 * @param {Documents} documents
 * @param {{text: () => string, focusText: () => void, toast: import("../editor/notices.js").Notices["toast"]}} page
 */
export function setUpDocumentsPanel(root, documents, { text, focusText, toast }) {
  const find = finder(root);
  const panel = find("#pd-documents");
  const chooser = /** @type {HTMLInputElement} */ (find(".dc-file"));
  const radios = /** @type {NodeListOf<HTMLInputElement>} */ (panel.querySelectorAll("[name=dc-where]"));
  const elsewhere = find(".pd-elsewhere");
  const popup = new Popup(find("[data-do=documents]"), panel, {
    opened: () => run(draw),
    back: focusText,
  });

  // On a small screen the tools are in a menu, which closes after a choice.
  const menu = /** @type {HTMLButtonElement} */ (find(".pd-menu"));
  const unfold = (/** @type {boolean} */ open) => menu.setAttribute("aria-expanded", String(open));
  menu.addEventListener("click", () => unfold(menu.getAttribute("aria-expanded") !== "true"));
  find(".pd-tools").addEventListener("click", () => unfold(false));
  document.addEventListener("pointerdown", ({ target }) => {
    if (target instanceof Node && !menu.contains(target) && !find(".pd-tools").contains(target)) unfold(false);
  });

  /** Run an action and show its error, if it fails, as a toast. @param {() => Promise<unknown>} action */
  async function run(action) {
    try {
      await action();
    } catch (error) {
      toast(error instanceof Error ? error.message : String(error), { long: true });
    }
  }

  /** @type {Record<string, () => Promise<unknown> | void>} */
  const actions = {
    new: async () => {
      await documents.create();
      popup.close();
    },
    "open-file": () => chooser.click(),
    "close-documents": () => popup.close(),
    download: () => save("txt"),
    "download-md": () => save("md"),
    "export-all": async () => {
      const { documents: all, problems } = await documents.all();
      toast([`Saved as “${exportAll(all)}”.`, ...problems].join(" "), { long: problems.length > 0 });
    },
    "copy-elsewhere": () => documents.openCopy(elsewhere.dataset.id ?? ""),
    "list-elsewhere": () => popup.open(),
  };
  for (const [name, action] of Object.entries(actions)) {
    for (const button of root.querySelectorAll(`[data-do=${name}]`)) button.addEventListener("click", () => run(async () => action()));
  }
  twoClicks(find("[data-do=empty-bin]"), async () => {
    const rows = await documents.list();
    await documents.stored.remove(rows.filter(({ binned }) => binned !== null).map(({ id }) => id));
  });

  /** @param {"txt" | "md"} kind */
  function save(kind) {
    if (!text()) return toast("There is nothing to save yet.");
    const { title } = documents;
    toast(`Saved as “${exportText({ title, opening: "" }, text(), kind)}”.`);
  }

  // ---------------------------------------------------------------- the list

  async function draw() {
    if (panel.hidden) return;
    const rows = await documents.list();
    const here = rows.filter(({ binned }) => binned === null);
    const binned = rows.filter(({ binned }) => binned !== null);
    const first = () => find(".dc-first [data-do=new]");
    keepFocus(find(".dc-list"), first, () =>
      show(find(".dc-list"), here, (row) => [...publicButton(row), renameButton(row), binButton(row)]));
    keepFocus(find(".dc-binned"), first, () =>
      show(find(".dc-binned"), binned, (row) => [restoreButton(row), deleteButton(row)]));
    find(".dc-none").hidden = here.length > 0;
    const bin = find(".dc-bin");
    if (!binned.length && bin.contains(document.activeElement)) first().focus();
    bin.hidden = binned.length === 0;
    find(".dc-bin summary").textContent = `Bin (${binned.length})`;
    const { where, folder, problems } = await whereKept();
    const unmoved = documents.stored.problems.map((message) => ({ message, note: "" }));
    keepFocus(find(".dc-problems"), first, () =>
      find(".dc-problems").replaceChildren(...[...problems, ...unmoved].map(problemItem)));
    for (const radio of radios) radio.checked = radio.value === where;
    find(".dc-folder").textContent = folder;
  }

  /**
   * Show these rows. Items of rows that did not change stay as they are, so that a click on one, or a title that is
   * being typed, is not lost when another changes.
   * @param {HTMLElement} list
   * @param {Row[]} rows
   * @param {(row: Row) => HTMLElement[]} buttons
   */
  function show(list, rows, buttons) {
    const shown = new Map(rows.map((row) => [JSON.stringify([row, description(row)]), row]));
    const kept = new Map(/** @type {HTMLElement[]} */ ([...list.children]).map((li) => [li.dataset.shows, li]));
    for (const [shows, li] of kept) if (!shown.has(shows ?? "")) li.remove();
    let at = list.firstElementChild;
    for (const [shows, row] of shown) {
      const li = kept.get(shows) ?? item(row, buttons(row));
      li.dataset.shows = shows;
      li.dataset.key = row.id;
      if (li === at) at = at.nextElementSibling;
      else list.insertBefore(li, at);
    }
  }

  /**
   * @param {Row} row
   * @param {HTMLElement[]} buttons
   */
  function item(row, buttons) {
    const li = document.createElement("li");
    const name = newElement(row.binned === null ? "a" : "span", "dc-name", "<b></b><small></small>");
    setText(name.querySelector("b"), titleOf(row));
    setText(name.querySelector("small"), description(row));
    if (name instanceof HTMLAnchorElement) {
      name.href = linkTo(row.id); // so that it can be opened in a new tab
      if (row.here) name.setAttribute("aria-current", "true");
      name.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        run(async () => {
          await documents.open(row.id);
          popup.close();
        });
      });
    }
    li.append(name, ...buttons);
    return li;
  }

  /** @param {import("./file_documents.js").Problem} problem */
  function problemItem({ message, note }) {
    const li = document.createElement("li");
    li.dataset.key = note;
    const text = document.createElement("span");
    text.textContent = message;
    const remove = textButton("Remove", `Remove: ${message}`, () => run(async () => {
      await setAside(note);
      documents.stored.listChanged();
    }));
    li.append(text, ...(note ? [remove] : []));
    return li;
  }

  /** The writer's way to say that a text of another program is not private. @param {Row} row */
  function publicButton(row) {
    if (!row.unsure) return [];
    const button = textButton("Not private", `Nothing in “${titleOf(row)}” is private`, () =>
      run(async () => {
        await documents.makePublic(row.id);
        toast(`“${titleOf(row)}” is not private: stores that learn may learn it.`, { long: true });
      }));
    button.className = "dc-public";
    button.disabled = row.elsewhere;
    return [button];
  }

  /** @param {Row} row */
  function renameButton(row) {
    const button = iconButton(PEN, `Rename “${titleOf(row)}”`, () => {
      const name = /** @type {HTMLElement} */ (button.parentElement?.querySelector(".dc-name"));
      const input = document.createElement("input");
      input.value = titleOf(row);
      input.setAttribute("aria-label", "Title");
      input.maxLength = MOST_TITLE;
      name.replaceWith(input);
      input.select();
      let done = false;
      const end = (/** @type {boolean} */ keep) => {
        if (done) return;
        done = true;
        input.replaceWith(name);
        const title = input.value.trim();
        run(async () => {
          if (keep && title !== titleOf(row)) await documents.rename(row.id, title);
          await draw();
        });
      };
      input.addEventListener("blur", () => end(true));
      input.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== "Escape") return;
        event.preventDefault();
        end(event.key === "Enter");
        button.focus();
      });
    });
    button.disabled = row.elsewhere;
    return button;
  }

  /** @param {Row} row */
  function binButton(row) {
    const button = iconButton(BIN, `Move “${titleOf(row)}” to the bin`, () =>
      run(async () => {
        await documents.putInBin(row.id, true);
        toast(`“${titleOf(row)}” is in the bin.`, {
          undo: () => run(async () => {
            await documents.putInBin(row.id, false);
            if (row.here) await documents.open(row.id);
          }),
        });
      }));
    button.disabled = row.elsewhere || row.forTab || Boolean(row.refused);
    return button;
  }

  /** @param {Row} row */
  function restoreButton(row) {
    return textButton("Put back", `Put “${titleOf(row)}” back`, () => run(() => documents.putInBin(row.id, false)));
  }

  /** @param {Row} row */
  function deleteButton(row) {
    const button = textButton("Delete", `Delete “${titleOf(row)}” for good`, () => {});
    twoClicks(button, () => documents.stored.remove([row.id]));
    return button;
  }

  /**
   * A button that deletes on its second click.
   * @param {HTMLElement} button
   * @param {() => Promise<unknown>} action
   */
  function twoClicks(button, action) {
    const { textContent: text, ariaLabel } = button;
    let timer = 0;
    const setSure = (/** @type {boolean} */ sure) => {
      clearTimeout(timer);
      button.toggleAttribute("data-sure", sure);
      button.textContent = sure ? "This cannot be undone. Delete?" : text;
      button.ariaLabel = sure ? null : ariaLabel;
      if (sure) timer = setTimeout(() => setSure(false), SURE_FOR);
    };
    button.addEventListener("click", () => {
      const sure = button.hasAttribute("data-sure");
      setSure(!sure);
      if (sure) run(action);
    });
  }

  for (const radio of radios) {
    radio.addEventListener("change", () => run(async () => {
      try {
        await documents.moveTo(/** @type {"browser" | "files"} */ (radio.value));
        const { where, folder } = await whereKept();
        toast(where === "files" ? `Your documents are now files in ${folder}.` : "Your documents are now kept in this browser.", { long: true });
      } finally {
        await draw();
      }
    }));
  }
  root.addEventListener("pd-documents", () => run(draw));

  // ---------------------------------------------------------------- files

  /** @param {Iterable<File>} files */
  async function openFiles(files) {
    for (const file of files) {
      await run(async () => {
        const read = await readFile(file);
        if ("text" in read) return documents.createFrom(read.title, read.text);
        const { added, present, problems } = await documents.stored.add(read.documents);
        const left = present ? ` ${plural(present, "document")} ${present === 1 ? "was" : "were"} here already.` : "";
        toast([`Added ${plural(added, "document")}.${left}`, ...problems].join(" "), { long: true });
      });
    }
  }

  chooser.addEventListener("change", async () => {
    popup.close();
    await openFiles([...(chooser.files ?? [])]);
    chooser.value = "";
  });
  const hasFiles = (/** @type {DragEvent} */ { dataTransfer }) =>
    root.dataset.tab !== "stores" && Boolean(dataTransfer?.types.includes("Files"));
  root.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    root.toggleAttribute("data-dropping", true);
  });
  root.addEventListener("dragleave", (event) => {
    if (!root.contains(/** @type {Node | null} */ (event.relatedTarget))) root.removeAttribute("data-dropping");
  });
  root.addEventListener("drop", (event) => {
    root.removeAttribute("data-dropping");
    if (!hasFiles(event)) return;
    event.preventDefault();
    openFiles([...(event.dataTransfer?.files ?? [])]);
  });

  // ---------------------------------------------------------------- this tab

  root.addEventListener("pd-document", () => {
    document.title = text() || documents.current.title ? `${documents.title} – Polydraft` : "Polydraft";
  });
  root.addEventListener("pd-elsewhere", (event) => {
    const detail = /** @type {CustomEvent} */ (event).detail;
    elsewhere.hidden = !detail;
    root.toggleAttribute("data-elsewhere", Boolean(detail)); // an empty text is not an invitation to write then
    if (!detail) return;
    elsewhere.dataset.id = detail.id;
    /** @type {HTMLElement} */ (elsewhere.querySelector("b")).textContent = `“${titleOf(detail)}” is open in another tab.`;
    popup.close();
  });
}

/** @param {Row} row */
function description({ words, changed, binned, elsewhere, forTab, unsure, refused }) {
  const since = binned === null ? when(changed) : `in the bin since ${when(binned)}`;
  return [
    forTab ? "incognito: in this tab only" : plural(words, "word"), since, unsure && "private: another program wrote it",
    elsewhere && "open in another tab", refused && `not saved: ${refused}`,
  ].filter(Boolean).join(" · ");
}

/** @param {number} time ms since 1970 */
function when(time) {
  if (Date.now() - time < MONTH) return ago(time);
  return new Date(time).toLocaleDateString("en", { day: "numeric", month: "long", year: "numeric" });
}

/**
 * @param {string} path of an icon
 * @param {string} label
 * @param {() => void} action
 */
function iconButton(path, label, action) {
  const button = textButton("", label, action);
  button.innerHTML = `<svg viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round"><path d="${path}"/></svg>`;
  button.title = label;
  return button;
}

/**
 * @param {string} text
 * @param {string} label
 * @param {() => void} action
 */
function textButton(text, label, action) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", textContent: text, ariaLabel: label });
  button.addEventListener("click", action);
  return button;
}
