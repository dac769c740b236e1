// @ts-check
/** Adds chosen or dropped files and folders to a personal store: uploads them in turn, shows progress, can be stopped. */

import { setText } from "../shared/dom.js";
import { ServerError, postJson, streamFile } from "../shared/transport.js";
import { messageOf, plural, words } from "../shared/wording.js";

export class Adding {
  /** @param {import("./stores.js").StoresTab} tab */
  constructor(tab) {
    this.tab = tab;
    this.root = tab.root;
    this.find = tab.find;
    /** The upload under way. @type {{ticket: string, stopping: boolean} | null} */
    this.upload = null;

    const drop = this.find(".ps-drop");
    const files = /** @type {HTMLInputElement} */ (this.find("#ps-files"));
    this.find(".ps-choose").addEventListener("click", () => files.click());
    files.addEventListener("change", () => {
      const chosen = [...(files.files ?? [])].map((file) => ({ name: file.name, file }));
      files.value = "";
      this.tab.act(() => this.add(chosen), drop);
    });
    // The whole tab accepts drops: otherwise the browser would open a file that misses the field in place of the page.
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

  /** Stop the upload. The server may still finish the current file; the last line of its answer reports that. */
  stop() {
    if (!this.upload) return;
    this.upload.stopping = true;
    this.tab.act(() => postJson("/api/stores/stop", { ticket: this.upload?.ticket ?? "" }), this.find(".ps-drop"));
  }

  /** @param {{name: string, file: File}[]} files */
  async add(files) {
    if (!files.length) return;
    if (this.upload) throw new ServerError("Files are already being added.", "Wait for them, or stop them.");
    const upload = (this.upload = { ticket: crypto.randomUUID(), stopping: false });
    const store = await this.tab.target();
    const bytes = files.reduce((sum, { file }) => sum + file.size, 0) || 1;
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
        setText(box.querySelector("label"), files.length > 1 ? `${name}, ${i + 1} of ${files.length}` : name);
        if (upload.stopping) {
          damage.push({ name: plural(files.length - i, "file"), reason: "not added: stopped" });
          break;
        }
        const path = `/api/stores/add?${new URLSearchParams({ store, name, ticket: upload.ticket })}`;
        let ended = false;
        const onLine = (/** @type {any} */ line) => {
          if (line.type === "progress") bar.value = (done + line.share * file.size) / bytes;
          else ended = true;
          if (line.type === "stopped") damage.push({ name, reason: "not added: stopped" });
          if (line.type === "error") damage.push({ name, reason: line.message.replace(`${name} `, "") });
          if (line.type !== "added") return;
          read += line.files;
          tokens += line.tokens;
          for (const place of line.damage) {
            damage.push({ name: place.line ? `${name}, line ${place.line}` : name, reason: place.reason });
          }
          const unlisted = line.damaged - line.damage.length;
          if (unlisted) damage.push({ name, reason: `and ${unlisted} more damaged places` });
        };
        try {
          await streamFile(path, file, onLine);
          if (!ended) damage.push({ name, reason: "Polydraft stopped reading it; see the terminal where it runs" });
        } catch (error) {
          damage.push({ name, reason: messageOf(error) });
        }
        done += file.size;
        bar.value = done / bytes;
        if (this.root.checkVisibility()) await this.tab.refresh();
      }
    } finally {
      this.upload = null;
      box.hidden = true;
    }
    const added = read ? `Added ${plural(read, "file")} (${words(tokens)}) to ${store}.` : `Nothing was added to ${store}.`;
    this.tab.report(damage.length ? `${added} ${plural(damage.length, "problem")}:` : added, damage);
    await this.tab.refresh();
  }
}

/**
 * All files of a dropped item. The name of a file in a folder includes its path.
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
  const files = [];
  for (;;) {
    /** @type {any[]} */
    const some = await new Promise((done, failed) => reader.readEntries(done, failed)); // at most a hundred per call
    if (!some.length) return files;
    for (const inner of some) {
      if (!inner.name.startsWith(".")) files.push(...(await filesIn(inner, `${path}${entry.name}/`)));
    }
  }
}
