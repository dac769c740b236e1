// @ts-check
/** Searches the personal stores for a phrase: shows its continuations, their counts and sources; can forget the phrase. */

import { newButton, newElement } from "../shared/dom.js";
import { postJson } from "../shared/transport.js";
import { plural, sources } from "../shared/wording.js";

/**
 * @typedef {{store: string, occurrences: Record<string, number>, after: string,
 *            following: {text: string, count: number, from: Record<string, number>}[]}} Found
 */

export class Searching {
  /** @param {import("./stores.js").StoresTab} tab */
  constructor(tab) {
    this.tab = tab;
    this.find = tab.find;
    this.searched = "";
  }

  /** Repeat the last search after the stores have changed. */
  async again() {
    if (this.searched) await this.search(this.searched);
  }

  /** @param {string} text */
  async search(text) {
    if (!text) return;
    /** @type {Found[]} */
    const rows = (await postJson("/api/stores/search", { text })).found;
    this.searched = text;
    const box = this.find(".ps-found");
    if (box.contains(document.activeElement)) this.find("#ps-text").focus(); // the result may be gone
    if (!rows.length) {
      box.replaceChildren(newElement("p", "", "<span></span>", { span: `“${text}” is in none of your stores.` }));
      return;
    }
    box.replaceChildren(...rows.map((row) => this.result(row)));
    const stores = rows.filter((row) => Object.keys(row.occurrences).length).map((row) => row.store);
    if (!stores.length) return;
    const forget = () => this.tab.act(() => this.tab.forget(stores, "phrase", text, `“${text}”`), this.find(".ps-find"));
    box.append(newButton(`Forget “${text}”`, forget, { className: "ps-forget" }));
  }

  /** @param {Found} found */
  result({ store, occurrences, after, following }) {
    const times = Object.values(occurrences).reduce((a, b) => a + b, 0);
    const count = times ? `Found ${plural(times, "time")}: ${sources(occurrences)}.` : "The whole phrase is not in it.";
    const heading = following.length ? ` “${after}” is followed by:` : " Nothing follows it.";
    const box = newElement("section", "ps-result", "<h4></h4><p></p><table><tbody></tbody></table>", { h4: store, p: count + heading });
    const most = following[0]?.count ?? 1;
    box.querySelector("tbody")?.replaceChildren(
      ...following.map(({ text, count, from }) => {
        const texts = { th: text, ".ps-count": `${count.toLocaleString()} ×`, ".ps-from": sources(from) };
        const row = newElement("tr", "", "<th scope=row></th><td class=ps-count></td><td class=ps-from></td>", texts);
        row.style.setProperty("--share", `${(100 * count) / most}%`);
        return row;
      }),
    );
    return box;
  }
}
