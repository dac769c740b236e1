// @ts-check
/** Searching the personal stores: what follows a phrase, how often, and where it is from; and forgetting it. */

import { postJson } from "./transport.js";
import { made, plural, setText, sources, sum } from "./wording.js";

/**
 * @typedef {{store: string, places: Record<string, number>, after: string,
 *            following: {text: string, count: number, from: Record<string, number>}[]}} Found
 */

export class Searching {
  /** @param {import("./stores.js").StoresTab} tab */
  constructor(tab) {
    this.tab = tab;
    this.find = tab.find;
    this.searched = "";
  }

  /** The same words once more, where there are any: what the stores know has changed. */
  async again() {
    if (this.searched) await this.search(this.searched);
  }

  /** @param {string} text */
  async search(text) {
    if (!text) return;
    /** @type {Found[]} */
    const found = (await postJson("/api/stores/search", { text })).found;
    this.searched = text;
    const box = this.find(".ps-found");
    if (!found.length) {
      box.replaceChildren(made("p", "", ""));
      setText(box, "p", `“${text}” is in none of your stores.`);
      return;
    }
    box.replaceChildren(...found.map((row) => this.result(row)));
    const knowing = found.filter((row) => Object.keys(row.places).length).map((row) => row.store);
    if (!knowing.length) return;
    const button = made("button", "ps-forget", "");
    button.setAttribute("type", "button");
    button.textContent = `Forget “${text}”`;
    const form = this.find(".ps-find");
    button.addEventListener("click", () => this.tab.act(() => this.tab.forget(knowing, text, `“${text}”`), form));
    box.append(button);
  }

  /** @param {Found} found */
  result({ store, places, after, following }) {
    const box = made("section", "ps-result", "<h4></h4><p></p><table><tbody></tbody></table>");
    setText(box, "h4", store);
    const times = sum(places);
    const stands = times ? `Found ${plural(times, "time")}: ${sources(places)}.` : "The whole phrase is not in it.";
    const goesOn = following.length ? ` “${after}” is followed by:` : " Nothing follows it.";
    setText(box, "p", stands + goesOn);
    const most = following[0]?.count ?? 1;
    box.querySelector("tbody")?.replaceChildren(
      ...following.map(({ text, count, from }) => {
        const row = made("tr", "", "<th scope=row></th><td class=ps-count></td><td class=ps-from></td>");
        setText(row, "th", text);
        setText(row, ".ps-count", `${count.toLocaleString()} ×`);
        setText(row, ".ps-from", sources(from));
        row.style.setProperty("--share", `${(100 * count) / most}%`);
        return row;
      }),
    );
    return box;
  }
}
