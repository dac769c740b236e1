// @ts-check
/** The rows of the panel “Documents”: each with its link and what can be done with the document, and those of the bin. */

import { MOST_TITLE, titleOf } from "./document.js";
import { linkTo } from "./documents.js";
import { newButton, newElement } from "../shared/dom.js";
import { ago, plural } from "../shared/wording.js";

/** @typedef {import("./documents.js").Documents} Documents */
/** @typedef {Awaited<ReturnType<Documents["list"]>>[number]} Row */

/**
 * What the rows need of their panel: to run an action and show its error, a message, to close it, to draw it again.
 * @typedef {{run: (action: () => Promise<unknown>) => Promise<void>, toast: import("../editor/notices.js").Notices["toast"],
 *   close: () => void, draw: () => Promise<void>}} Panel
 */

const SURE_FOR = 4000; // ms in which a second click deletes
const MONTH = 30 * 86_400_000; // ms
const PEN = "M4 20h4L19 9l-4-4L4 16z";
const BIN = "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13";

export class DocumentRows {
  #documents;
  #panel;

  /** @param {Documents} documents @param {Panel} panel */
  constructor(documents, panel) {
    this.#documents = documents;
    this.#panel = panel;
  }

  /** @param {HTMLElement} list @param {Row[]} rows */
  showDocuments(list, rows) {
    this.#show(list, rows, (row) => [...this.#publicButton(row), this.#renameButton(row), this.#binButton(row)]);
  }

  /** @param {HTMLElement} list @param {Row[]} rows */
  showBin(list, rows) {
    this.#show(list, rows, (row) => [this.#restoreButton(row), this.#deleteButton(row)]);
  }

  /**
   * Show these rows. Items of rows that did not change stay as they are, so that a click on one, or a title that is
   * being typed, is not lost when another changes.
   * @param {HTMLElement} list
   * @param {Row[]} rows
   * @param {(row: Row) => HTMLElement[]} buttons
   */
  #show(list, rows, buttons) {
    const shown = new Map(rows.map((row) => [JSON.stringify([row, description(row)]), row]));
    const kept = new Map(/** @type {HTMLElement[]} */ ([...list.children]).map((li) => [li.dataset.shows, li]));
    for (const [shows, li] of kept) if (!shown.has(shows ?? "")) li.remove();
    let at = list.firstElementChild;
    for (const [shows, row] of shown) {
      const li = kept.get(shows) ?? this.#item(row, buttons(row));
      li.dataset.shows = shows;
      li.dataset.key = row.id;
      if (li === at) at = at.nextElementSibling;
      else list.insertBefore(li, at);
    }
  }

  /** @param {Row} row @param {HTMLElement[]} buttons */
  #item(row, buttons) {
    const li = document.createElement("li");
    const texts = { b: titleOf(row), small: description(row) };
    const name = newElement(row.binned === null ? "a" : "span", "dc-name", "<b></b><small></small>", texts);
    if (name instanceof HTMLAnchorElement) {
      name.href = linkTo(row.id); // so that it can be opened in a new tab
      if (row.here) name.setAttribute("aria-current", "true");
      name.addEventListener("click", (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault();
        this.#panel.run(async () => {
          await this.#documents.open(row.id);
          this.#panel.close();
        });
      });
    }
    li.append(name, ...buttons);
    return li;
  }

  /** The writer's way to say that a text of another program is not private. @param {Row} row */
  #publicButton(row) {
    if (!row.unsure) return [];
    const button = newButton("Not private", () =>
      this.#panel.run(async () => {
        await this.#documents.makePublic(row.id);
        this.#panel.toast(`“${titleOf(row)}” is not private: stores that learn may learn it.`, { long: true });
      }), { label: `Nothing in “${titleOf(row)}” is private`, className: "dc-public" });
    button.disabled = row.elsewhere;
    return [button];
  }

  /** @param {Row} row */
  #renameButton(row) {
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
        this.#panel.run(async () => {
          if (keep && title !== titleOf(row)) await this.#documents.rename(row.id, title);
          await this.#panel.draw();
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
  #binButton(row) {
    const button = iconButton(BIN, `Move “${titleOf(row)}” to the bin`, () =>
      this.#panel.run(async () => {
        await this.#documents.putInBin(row.id, true);
        this.#panel.toast(`“${titleOf(row)}” is in the bin.`, {
          undo: () => this.#panel.run(async () => {
            await this.#documents.putInBin(row.id, false);
            if (row.here) await this.#documents.open(row.id);
          }),
        });
      }));
    button.disabled = row.elsewhere || row.forTab || Boolean(row.refused);
    return button;
  }

  /** @param {Row} row */
  #restoreButton(row) {
    const restore = () => this.#panel.run(() => this.#documents.putInBin(row.id, false));
    return newButton("Put back", restore, { label: `Put “${titleOf(row)}” back` });
  }

  /** @param {Row} row */
  #deleteButton(row) {
    const button = newButton("Delete", () => {}, { label: `Delete “${titleOf(row)}” for good` });
    twoClicks(button, this.#panel.run, () => this.#documents.stored.remove([row.id]));
    return button;
  }
}

/**
 * A button that deletes on its second click.
 * @param {HTMLElement} button
 * @param {(action: () => Promise<unknown>) => void} run
 * @param {() => Promise<unknown>} action
 */
export function twoClicks(button, run, action) {
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
  const button = newButton("", action, { label });
  button.innerHTML = `<svg viewBox="0 0 24 24" aria-hidden="true" fill="none" stroke="currentColor" stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round"><path d="${path}"/></svg>`;
  button.title = label;
  return button;
}
