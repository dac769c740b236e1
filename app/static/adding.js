// @ts-check
/** Files and folders into a personal store: chosen or dropped, sent one after the other, with a bar, and stopped. */

import { ServerError, postJson, streamFile } from "./transport.js";
import { inWords, plural, setText } from "./wording.js";

export class Adding {
  /** @param {import("./stores.js").StoresTab} tab */
  constructor(tab) {
    this.tab = tab;
    this.root = tab.root;
    this.find = tab.find;
    /** Files that are being added. @type {{ticket: string, stopping: boolean} | null} */
    this.adding = null;
    this.setUpFiles();
  }

  setUpFiles() {
    const drop = this.find(".ps-drop");
    const files = /** @type {HTMLInputElement} */ (this.find("#ps-files"));
    this.find(".ps-choose").addEventListener("click", () => files.click());
    files.addEventListener("change", () => {
      const chosen = [...(files.files ?? [])].map((file) => ({ name: file.name, file }));
      files.value = "";
      this.tab.act(() => this.add(chosen), drop);
    });
    // Anywhere on the tab: a file that misses the field must not replace the page.
    for (const name of ["dragenter", "dragover"]) {
      this.root.addEventListener(name, (event) => {
        event.preventDefault();
        drop.classList.add("ps-over");
      });
    }
    this.root.addEventListener("dragleave", (event) => {
      if (!this.root.contains(/** @type {Node | null} */ (event.relatedTarget))) drop.classList.remove("ps-over");
    });
    this.root.addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("ps-over");
      const entries = [...(event.dataTransfer?.items ?? [])].map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile());
      this.tab.act(async () => this.add((await Promise.all(entries.map((entry) => filesIn(entry)))).flat()), drop);
    });
    this.find(".ps-progress button").addEventListener("click", () => this.stop());
    this.find(".ps-report button").addEventListener("click", () => (this.find(".ps-report").hidden = true));
  }

  /** Stop adding. A file that is nearly in may still get there: its last line tells. */
  stop() {
    if (!this.adding) return;
    this.adding.stopping = true;
    this.tab.act(() => postJson("/api/stores/stop", { ticket: this.adding?.ticket ?? "" }), this.find(".ps-drop"));
  }

  /** @param {{name: string, file: File}[]} files */
  async add(files) {
    if (!files.length) return;
    if (this.adding) throw new ServerError("Files are already being added.", "Wait for them, or stop them.");
    const adding = (this.adding = { ticket: crypto.randomUUID(), stopping: false });
    const store = await this.tab.target();
    const all = files.reduce((sum, { file }) => sum + file.size, 0) || 1;
    const box = this.find(".ps-progress");
    const bar = /** @type {HTMLProgressElement} */ (this.find("#ps-bar"));
    let [done, read, tokens] = [0, 0, 0];
    /** @type {{name: string, reason: string}[]} */
    const damage = [];
    this.find(".ps-report").hidden = true;
    bar.value = 0;
    box.hidden = false;
    try {
      for (const [i, { name, file }] of files.entries()) {
        setText(box, "label", files.length > 1 ? `${name}, ${i + 1} of ${files.length}` : name);
        if (adding.stopping) {
          damage.push({ name: plural(files.length - i, "file"), reason: "not added: stopped" });
          break;
        }
        const path = `/api/stores/add?${new URLSearchParams({ store, name, ticket: adding.ticket })}`;
        let ended = false;
        const line = (/** @type {any} */ said) => {
          if (said.type === "progress") bar.value = (done + said.share * file.size) / all;
          else ended = true;
          if (said.type === "stopped") damage.push({ name, reason: "not added: stopped" });
          if (said.type === "error") damage.push({ name, reason: said.message.replace(`${name} `, "") });
          if (said.type !== "added") return;
          read += said.files;
          tokens += said.tokens;
          for (const { line, reason } of said.damage) damage.push({ name: line ? `${name}, line ${line}` : name, reason });
          const unlisted = said.damaged - said.damage.length;
          if (unlisted) damage.push({ name, reason: `and ${unlisted} more damaged places` });
        };
        try {
          await streamFile(path, file, line);
          if (!ended) damage.push({ name, reason: "Polydraft stopped reading it; see the terminal where it runs" });
        } catch (error) {
          damage.push({ name, reason: inWords(error) });
        }
        done += file.size;
        bar.value = done / all;
        if (this.root.checkVisibility()) await this.tab.refresh();
      }
    } finally {
      this.adding = null;
      box.hidden = true;
    }
    const added = read ? `Added ${plural(read, "file")} (${plural(tokens, "token")}) to ${store}.` : `Nothing was added to ${store}.`;
    this.tab.report(damage.length ? `${added} ${plural(damage.length, "problem")}:` : added, damage);
    await this.tab.refresh();
  }

}

/**
 * All files in something that was dropped; those in folders with their path.
 * @param {any} entry a FileSystemEntry, a File, or null
 * @returns {Promise<{name: string, file: File}[]>}
 */
async function filesIn(entry, path = "") {
  if (!entry) return [];
  if (entry instanceof File) return [{ name: entry.name, file: entry }];
  if (entry.isFile) {
    const file = await new Promise((done, failed) => entry.file(done, failed));
    return [{ name: path + entry.name, file }];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    /** @type {any[]} */
    const some = await new Promise((done, failed) => reader.readEntries(done, failed)); // a hundred at a time
    if (!some.length) return found;
    for (const inner of some) {
      if (!inner.name.startsWith(".")) found.push(...(await filesIn(inner, `${path}${entry.name}/`)));
    }
  }
}
