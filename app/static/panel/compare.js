// @ts-check
/**
 * Compares two settings: A, which is pinned or a preset, and B, the present one, which the sliders go on to change. The
 * drafts of both for the same text stand in two columns, in place of the list. B's are the rows of the page; A's come
 * from requests of their own, in a session of their own, one after each answer to B.
 */

import { cropped } from "../editor/drafting.js";
import { newElement, on, part, setText } from "../shared/dom.js";
import { ServerError, freshId, leaveAs, streamDrafts } from "../shared/transport.js";
import { PINNED } from "./presets.js";
import { Setting } from "./setting.js";

/**
 * @typedef {{first_ms: number, all_ms: number}} Cost of the drafts of one setting, in ms
 */

export class Compare {
  /** @param {import("./panel.js").Panel} panel */
  constructor(panel) {
    this.panel = panel;
    /** @type {Setting | null} */
    this.a = null;
    this.against = PINNED; // what A is: a value of the list of presets
    /** @type {string[]} */
    this.drafts = [];
    /** @type {{a: Cost | null, b: Cost | null}} */
    this.costs = { a: null, b: null };
    this.problem = "";
    this.tab = freshId();
    this.n = 0;
    /** @type {AbortController | null} */
    this.running = null;
    this.box = newElement("section", "pd-compare", `
      <div class="cp-head"><h3>A · <span></span></h3><p></p><ol></ol></div>
      <div class="cp-head"><h3>B · <span></span></h3><p></p><ol></ol></div>
      <p class="cp-do"><button type="button" data-do="swap">Swap</button> <button type="button" data-do="keep-a">Keep A</button>
        <button type="button" data-do="keep-b">Keep B</button></p>`);
    this.box.setAttribute("aria-label", "Two settings compared");
    this.box.hidden = true;
    const { root } = panel;
    root.querySelector(".pd-list")?.after(this.box);
    this.box.addEventListener("click", ({ target }) => this.clicked(target));
    root.addEventListener("pd-drafts", () => this.request());
    root.addEventListener("pd-rows", () => this.draw());
    root.addEventListener("pd-cleared", () => this.forget());
    root.addEventListener("pd-dropped", () => this.leave());
    on(root, "pd-stats", (cost) => {
      this.costs.b = cost;
      this.draw();
    });
    addEventListener("pagehide", () => this.leave());
  }

  get on() {
    return this.a !== null;
  }

  /** Begin with the present setting as A, or end. */
  toggle() {
    if (this.on) this.end();
    else this.begin();
  }

  /**
   * A becomes the present setting, with a change.
   * @param {(a: Setting) => void} change
   * @param {string} against
   */
  begin(change = () => {}, against = PINNED) {
    const { setting } = this.panel;
    this.a = new Setting(setting.catalogue);
    this.a.setAll(setting.values);
    change(this.a);
    this.against = against;
    this.forget();
    this.changed();
    this.request();
  }

  end() {
    this.a = null;
    this.leave();
    this.changed();
  }

  changed() {
    this.box.hidden = !this.on;
    this.panel.root.toggleAttribute("data-comparing", this.on);
    this.panel.render();
    this.panel.editor.view.drawList();
    this.draw();
  }

  /** @param {"keep-a" | "keep-b" | "swap"} what */
  settle(what) {
    const { a, panel } = this;
    if (!a) return;
    const [before, values] = [{ ...panel.setting.values }, { ...a.values }];
    if (what !== "keep-b") panel.setting.setAll(values);
    if (what === "swap") this.begin((other) => other.setAll(before));
    else this.end();
    panel.changed();
  }

  // ---------------------------------------------------------------- A's drafts

  /** Request A's drafts for the text of B's. */
  async request() {
    const { drafts } = this.panel.editor;
    const before = drafts.before();
    if (!this.a || before === null || drafts.request?.before !== before) return;
    this.running?.abort();
    const controller = (this.running = new AbortController());
    const settings = this.a.request();
    const fields = { ...drafts.documentFields(), tab: this.tab, unasked: true, merge_alike: true, grow: true };
    const failed = await streamDrafts({ n: ++this.n, before: cropped(before), settings, ...fields }, (line) => {
      if (controller.signal.aborted) return;
      if (line.type === "drafts") {
        this.problem = "";
        this.drafts = [];
        for (const { id, text } of line.drafts) this.drafts[id] = text;
      } else if (line.type === "stats") this.costs.a = line;
      else if (line.type === "error") this.problem = line.message;
      this.draw();
    }, controller.signal);
    if (!(failed instanceof ServerError)) return; // the page says that the connection is lost
    this.problem = failed.message;
    this.draw();
  }

  /** Empty A's column. */
  forget() {
    this.running?.abort();
    this.drafts = [];
    this.draw();
  }

  /** Let the server forget A's text. */
  leave() {
    this.forget();
    if (this.n) leaveAs(this.tab);
    this.tab = freshId();
    this.n = 0;
  }

  // ---------------------------------------------------------------- the columns

  draw() {
    const { a, panel } = this;
    if (!a) return;
    const rows = panel.editor.rows.all.map(({ rest, live }) => (live ? rest : ""));
    const k = Math.max(Number(a.options.k), Number(panel.setting.options.k));
    const columns = [
      { name: panel.presets.named(this.against)?.name ?? a.inWords(), drafts: this.drafts, others: rows, cost: this.costs.a, problem: this.problem },
      { name: panel.setting.inWords(), drafts: rows, others: this.drafts, cost: this.costs.b, problem: "" },
    ];
    columns.forEach(({ name, drafts, others, cost, problem }, i) => {
      const column = /** @type {HTMLElement} */ (this.box.children[i]);
      setText(column.querySelector("span"), name);
      setText(column.querySelector("p"), problem || (cost ? `First draft after ${cost.first_ms.toFixed(0)} ms, all after ${cost.all_ms.toFixed(0)} ms` : ""));
      const list = part(column, "ol");
      while (list.children.length > k) list.lastElementChild?.remove();
      while (list.children.length < k) list.append(newElement("li", "", `<button type="button"><span></span><b></b></button>`));
      [...list.children].forEach((item, row) => drawDraft(item, drafts[row] ?? "", others));
    });
  }

  /** @param {EventTarget | null} target */
  clicked(target) {
    const button = target instanceof Element && target.closest("button");
    if (!button) return;
    const what = button.dataset.do;
    if (what === "swap" || what === "keep-a" || what === "keep-b") this.settle(what);
    else this.panel.editor.field.insert(button.textContent ?? "");
  }
}

/**
 * A draft with what no draft of the other setting has, from the first word that differs, marked.
 * @param {Element} item
 * @param {string} text
 * @param {string[]} others
 */
function drawDraft(item, text, others) {
  const shared = Math.max(0, ...others.filter(Boolean).map((other) => sharedWords(text, other)));
  item.toggleAttribute("data-empty", !text);
  setText(item.querySelector("span"), text.slice(0, shared));
  setText(item.querySelector("b"), text.slice(shared));
}

/**
 * How many characters two texts begin with alike, in whole words.
 * @param {string} text
 * @param {string} other
 */
export function sharedWords(text, other) {
  let same = 0;
  while (same < text.length && text[same] === other[same]) same++;
  const ends = (/** @type {string} */ each) => same === each.length || /\s/.test(each[same]);
  if (ends(text) && ends(other)) return same;
  return text.slice(0, same).search(/\S*$/);
}
