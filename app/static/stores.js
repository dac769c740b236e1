// @ts-check
/**
 * The tab of personal stores: what there is, files and phrases in, searching, forgetting, switching on and off. Loaded
 * when it is first opened. The server has the truth; after every action the list is asked for anew.
 */

import { ServerError, getJson, postJson, streamFile } from "./transport.js";

/**
 * A store as the server lists it; one that cannot be used has a name and a problem alone.
 * @typedef {{origin: string, documents: number, tokens: number, added: string}} Origin
 * @typedef {{store: string, problem?: string, enabled: boolean, learning: boolean, bytes: number, changed: string,
 *            tokens: number, origins: Origin[], unlisted: number}} Store
 * @typedef {{store: string, places: Record<string, number>, after: string,
 *            following: {text: string, count: number, from: Record<string, number>}[]}} Found
 */

const FIRST = "me"; // the store that is made for the first files
const TYPED = "typed"; // the origin of what was written in the editor, and of phrases
const SHOWN = 3; // origins that a search result names

/**
 * Build the tab inside the page.
 * @param {HTMLElement} root
 * @param {import("./learning.js").Learning} learning
 */
export async function open(root, learning) {
  const here = (/** @type {string} */ name) => new URL(name, import.meta.url).href;
  const [markup] = await Promise.all([fetch(here("stores.html")).then((r) => r.text()), styled(here("stores.css"))]);
  root.querySelector("#pd-stores")?.remove(); // of an attempt that failed half-way
  root.querySelector(".pd-desk")?.insertAdjacentHTML("afterend", markup);
  return new StoresTab(/** @type {HTMLElement} */ (root.querySelector("#pd-stores")), learning);
}

/** @param {string} href */
function styled(href) {
  return new Promise((done, failed) => {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href, onload: done, onerror: failed });
    document.head.append(link);
  });
}

class StoresTab {
  /**
   * @param {HTMLElement} root
   * @param {import("./learning.js").Learning} learning
   */
  constructor(root, learning) {
    this.root = root;
    this.learning = learning;
    /** @type {<T extends HTMLElement>(selector: string) => T} */
    this.find = (selector) => /** @type {any} */ (root.querySelector(selector));
    /** @type {Store[]} */
    this.stores = [];
    /** @type {{ticket: string, stopping: boolean} | null} files that are being added */
    this.adding = null;
    this.searched = "";

    this.onSubmit(".ps-new", async (form) => {
      const store = field(form, "store").value.trim();
      await postJson("/api/stores/create", { store });
      form.reset();
      this.say(`The store ${store} is there.`);
      await this.refresh();
      this.into.value = store;
    });
    this.onSubmit(".ps-phrase", async (form) => {
      const text = field(form, "text").value.trim();
      const store = await this.target();
      await postJson("/api/stores/add-phrase", { store, text });
      form.reset();
      this.report(`“${text}” is in ${store}; drafts know it from the next key on.`, []);
      await this.refresh();
    });
    this.onSubmit(".ps-find", (form) => this.search(field(form, "text").value.trim()));
    this.setUpFiles();
    addEventListener("focus", () => root.checkVisibility() && this.refresh().catch(() => {}));
  }

  /** @returns {HTMLSelectElement} */
  get into() {
    return this.find("#ps-into");
  }

  /**
   * @param {string} selector
   * @param {(form: HTMLFormElement) => Promise<void>} action
   */
  onSubmit(selector, action) {
    const form = /** @type {HTMLFormElement} */ (this.find(selector));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.act(() => action(form));
    });
  }

  /**
   * Do something, and say what goes wrong.
   * @param {() => Promise<void>} action
   */
  async act(action) {
    try {
      await action();
    } catch (error) {
      this.report(inWords(error), [], true);
    }
  }

  /** @param {string} text for screen readers */
  say(text) {
    this.find(".ps-said").textContent = text;
  }

  // ---------------------------------------------------------------- the list

  async refresh() {
    this.stores = (await getJson("/api/stores")).stores;
    const list = this.find(".ps-list");
    const old = new Map([...list.children].map((item) => [/** @type {HTMLElement} */ (item).dataset.store, item]));
    for (const [i, store] of this.stores.entries()) {
      let item = /** @type {HTMLElement | undefined} */ (old.get(store.store));
      if (item && "problem" in item.dataset !== "problem" in store) item.remove(), (item = undefined);
      item ??= "problem" in store ? this.newProblem(store) : this.newStore(store);
      old.delete(store.store);
      if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null);
      if ("problem" in store) setText(item, ".ps-problem", store.problem ?? "");
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
  }

  /** @param {Store} store */
  newStore({ store }) {
    const item = made("li", "ps-store", `
      <div class="ps-what"><h3></h3><p class="ps-facts"></p></div>
      <div class="ps-switches">
        <label><input type="checkbox" role="switch" class="ps-on"> In drafts</label>
        <label><input type="checkbox" role="switch" class="ps-learns"> Learns as I write</label>
      </div>
      <details>
        <summary></summary>
        <ul></ul>
        <p class="ps-more" hidden></p>
        <button type="button" class="ps-delete">Delete this store</button>
      </details>`);
    item.dataset.store = store;
    setText(item, "h3", store);
    const on = /** @type {HTMLInputElement} */ (item.querySelector(".ps-on"));
    const learns = /** @type {HTMLInputElement} */ (item.querySelector(".ps-learns"));
    on.setAttribute("aria-label", `${store}: in drafts`);
    learns.setAttribute("aria-label", `${store}: learns as I write`);
    on.addEventListener("change", () => this.switch("switch", store, on));
    learns.addEventListener("change", () => this.switch("switch-learning", store, learns));
    item.querySelector(".ps-delete")?.addEventListener("click", () => this.act(() => this.delete(store)));
    return item;
  }

  /** @param {Store} store */
  newProblem({ store }) {
    const item = made("li", "ps-store", `
      <div class="ps-what"><h3></h3><p class="ps-problem"></p></div>
      <button type="button" class="ps-delete">Delete this store</button>`);
    Object.assign(item.dataset, { store, problem: "" });
    setText(item, "h3", store);
    item.querySelector(".ps-delete")?.addEventListener("click", () => this.act(() => this.delete(store)));
    return item;
  }

  /**
   * @param {HTMLElement} item
   * @param {Store} store
   */
  draw(item, { store, enabled, learning, bytes, changed, tokens, origins, unlisted }) {
    const facts = /** @type {HTMLElement} */ (item.querySelector(".ps-facts"));
    facts.textContent = `${plural(tokens, "token")} · ${size(bytes)} · changed ${ago(changed)}`;
    facts.title = new Date(changed).toLocaleString();
    const on = /** @type {HTMLInputElement} */ (item.querySelector(".ps-on"));
    const learns = /** @type {HTMLInputElement} */ (item.querySelector(".ps-learns"));
    on.checked = enabled;
    learns.checked = learning;
    learns.disabled = !enabled;
    /** @type {HTMLElement} */ (learns.parentElement).title = enabled
      ? "Drafts that you take and paragraphs that you finish go in. Incognito pauses it for a tab."
      : "A store that is off learns nothing.";
    setText(item, "summary", origins.length ? plural(origins.length + unlisted, "source") : "Nothing in it yet");
    const list = /** @type {HTMLElement} */ (item.querySelector("ul"));
    list.replaceChildren(
      ...origins.map(({ origin, tokens, added }) => {
        const row = made("li", "ps-origin", `<span class="ps-name"></span><span class="ps-facts"></span>
          <button type="button">Forget</button>`);
        setText(row, ".ps-name", called(origin));
        /** @type {HTMLElement} */ (row.querySelector(".ps-name")).title = origin;
        setText(row, ".ps-facts", `${plural(tokens, "token")}, ${ago(added)}`);
        const button = /** @type {HTMLElement} */ (row.querySelector("button"));
        button.setAttribute("aria-label", `Forget ${called(origin)}`);
        button.addEventListener("click", () => this.act(() => this.forget([store], origin, called(origin))));
        return row;
      }),
    );
    const more = /** @type {HTMLElement} */ (item.querySelector(".ps-more"));
    more.hidden = !unlisted;
    more.textContent = `… and ${unlisted} older ones; \`polydraft ngram stats --store ${store}\` lists them.`;
  }

  /**
   * @param {string} action
   * @param {string} store
   * @param {HTMLInputElement} box
   */
  switch(action, store, box) {
    return this.act(async () => {
      const on = box.checked;
      try {
        await postJson(`/api/stores/${action}`, { store, on });
      } finally {
        await this.refresh();
      }
      await this.learning.ask({ anew: true });
    });
  }

  /** @param {string} store */
  async delete(store) {
    const sure = await this.sure(
      `Delete the store ${store}?`, "Its texts and its counts are overwritten and removed. There is no way back.", "Delete",
    );
    if (!sure) return;
    await postJson("/api/stores/delete", { store });
    this.say(`The store ${store} is deleted.`);
    await this.refresh();
    await this.learning.ask({ anew: true });
    this.find("#ps-name").focus();
  }

  /**
   * @param {string[]} stores
   * @param {string} what
   * @param {string} name as it is shown
   */
  async forget(stores, what, name) {
    const text = "Text and counts are overwritten and removed. There is no way back.";
    if (!(await this.sure(`Forget ${name}?`, text, "Forget"))) return;
    let [documents, places, complete] = [0, 0, true];
    for (const store of stores) {
      const done = await postJson("/api/stores/forget", { store, what });
      documents += done.documents;
      places += done.places;
      complete &&= done.complete;
    }
    const removed = documents ? plural(documents, "document") : plural(places, "place");
    const rest = complete ? "" : " Another program has the store open; the last traces go when that lets go.";
    this.report(`${name} is forgotten: ${removed}.${rest}`, []);
    await this.refresh();
    if (this.searched) await this.search(this.searched);
  }

  /**
   * @param {string} question
   * @param {string} text
   * @param {string} yes
   * @returns {Promise<boolean>}
   */
  sure(question, text, yes) {
    const dialog = /** @type {HTMLDialogElement} */ (this.find(".ps-sure"));
    setText(dialog, "h2", question);
    setText(dialog, "p", text);
    setText(dialog, "button[value=yes]", yes);
    dialog.returnValue = "";
    dialog.showModal();
    /** @type {HTMLElement} */ (dialog.querySelector(".ps-no")).focus();
    return new Promise((answer) => {
      dialog.addEventListener("close", () => answer(dialog.returnValue === "yes"), { once: true });
    });
  }

  // ---------------------------------------------------------------- adding

  setUpFiles() {
    const drop = this.find(".ps-drop");
    const files = /** @type {HTMLInputElement} */ (this.find("#ps-files"));
    this.find(".ps-choose").addEventListener("click", () => files.click());
    files.addEventListener("change", () => {
      const chosen = [...(files.files ?? [])].map((file) => ({ name: file.name, file }));
      files.value = "";
      this.act(() => this.add(chosen));
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
      this.act(async () => this.add((await Promise.all(entries.map((entry) => filesIn(entry)))).flat()));
    });
    this.find(".ps-progress button").addEventListener("click", () => this.stop());
    this.find(".ps-report button").addEventListener("click", () => (this.find(".ps-report").hidden = true));
  }

  /** Stop adding. A file that is nearly in may still get there: its last line tells. */
  stop() {
    if (!this.adding) return;
    this.adding.stopping = true;
    this.act(() => postJson("/api/stores/stop", { ticket: this.adding?.ticket ?? "" }));
  }

  /** The store to add to; the first one is made. */
  async target() {
    const store = this.into.value || FIRST;
    if (!this.stores.some((known) => known.store === store)) await postJson("/api/stores/create", { store });
    return store;
  }

  /** @param {{name: string, file: File}[]} files */
  async add(files) {
    if (!files.length) return;
    if (this.adding) throw new ServerError("Files are being added already.", "Wait for them, or stop them.");
    const adding = (this.adding = { ticket: crypto.randomUUID(), stopping: false });
    const store = await this.target();
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
          if (!ended) damage.push({ name, reason: "the server stopped reading it; look at the window where it runs" });
        } catch (error) {
          damage.push({ name, reason: inWords(error) });
        }
        done += file.size;
        bar.value = done / all;
        if (this.root.checkVisibility()) await this.refresh();
      }
    } finally {
      this.adding = null;
      box.hidden = true;
    }
    const problems = damage.length ? `; ${plural(damage.length, "problem")}:` : ".";
    this.report(`${plural(tokens, "token")} out of ${plural(read, "file")} went into ${store}${problems}`, damage);
    await this.refresh();
  }

  /**
   * Say what was done, and what was not.
   * @param {string} said
   * @param {{name: string, reason: string}[]} damage
   * @param {boolean} failed
   */
  report(said, damage, failed = damage.length > 0) {
    const box = this.find(".ps-report");
    box.hidden = false;
    box.classList.toggle("ps-failed", failed);
    setText(box, "p", said);
    box.querySelector("ul")?.replaceChildren(
      ...damage.map(({ name, reason }) => {
        const row = made("li", "", "<b></b> <span></span>");
        setText(row, "b", name);
        setText(row, "span", reason);
        return row;
      }),
    );
    this.say([said, ...damage.map(({ name, reason }) => `${name}: ${reason}`)].join(" "));
    box.scrollIntoView({ block: "nearest" });
  }

  // ---------------------------------------------------------------- searching

  /** @param {string} text */
  async search(text) {
    if (!text) return;
    /** @type {Found[]} */
    const found = (await postJson("/api/stores/search", { text })).found;
    this.searched = text;
    const box = this.find(".ps-found");
    if (!found.length) {
      box.replaceChildren(made("p", "", ""));
      setText(box, "p", `No store knows “${text}”.`);
      return;
    }
    box.replaceChildren(...found.map((row) => this.result(row)));
    const knowing = found.filter((row) => Object.keys(row.places).length).map((row) => row.store);
    if (!knowing.length) return;
    const button = made("button", "ps-forget", "");
    button.setAttribute("type", "button");
    button.textContent = `Forget “${text}”`;
    button.addEventListener("click", () => this.act(() => this.forget(knowing, text, `“${text}”`)));
    box.append(button);
  }

  /** @param {Found} found */
  result({ store, places, after, following }) {
    const box = made("section", "ps-result", "<h4></h4><p></p><table><tbody></tbody></table>");
    setText(box, "h4", store);
    const times = sum(places);
    const stands = times ? `Stands ${plural(times, "time")}: ${sources(places)}.` : "Not in it as a whole.";
    const goesOn = following.length ? ` After “${after}”:` : " Nothing follows it.";
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

// ---------------------------------------------------------------- small things

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

/**
 * @param {HTMLFormElement} form
 * @param {string} name
 */
function field(form, name) {
  return /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
}

/**
 * @param {string} tag
 * @param {string} className
 * @param {string} markup of this file's own, never of anybody's data
 */
function made(tag, className, markup) {
  const element = document.createElement(tag);
  element.className = className;
  element.innerHTML = markup;
  return element;
}

/**
 * @param {HTMLElement} parent
 * @param {string} selector
 * @param {string} text
 */
function setText(parent, selector, text) {
  const element = parent.querySelector(selector);
  if (element && element.textContent !== text) element.textContent = text;
}

/** @param {unknown} error */
function inWords(error) {
  if (error instanceof ServerError) return [error.message, error.fix].filter(Boolean).join(" ");
  return error instanceof Error ? error.message : String(error);
}

/** @param {string} origin */
function called(origin) {
  if (origin === TYPED) return "Written here";
  return origin.includes("://") ? origin : origin.replace(/^.*\/(?=[^/]+$)/, "");
}

/** @param {Record<string, number>} counts */
function sum(counts) {
  return Object.values(counts).reduce((a, b) => a + b, 0);
}

/** @param {Record<string, number>} from */
function sources(from) {
  const most = Object.entries(from).sort((a, b) => b[1] - a[1]);
  const named = most.slice(0, SHOWN).map(([origin, n]) => `${called(origin)}${most.length > 1 ? ` (${n})` : ""}`);
  return [...named, ...(most.length > SHOWN ? [`${most.length - SHOWN} more`] : [])].join(", ");
}

/**
 * @param {number} n
 * @param {string} what
 */
function plural(n, what) {
  return `${n.toLocaleString()} ${what}${n === 1 ? "" : "s"}`;
}

/** @param {number} bytes */
function size(bytes) {
  if (bytes < 1e6) return `${Math.ceil(bytes / 1000).toLocaleString()} kB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** @param {string} date ISO 8601 */
function ago(date) {
  const seconds = (Date.parse(date) - Date.now()) / 1000;
  /** @type {[Intl.RelativeTimeFormatUnit, number][]} */
  const units = [["year", 31_557_600], ["month", 2_629_800], ["day", 86_400], ["hour", 3600], ["minute", 60]];
  for (const [unit, length] of units) {
    if (-seconds >= length) return RELATIVE.format(Math.round(seconds / length), unit);
  }
  return "just now";
}
