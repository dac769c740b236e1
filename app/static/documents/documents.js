// @ts-check
/**
 * The document that this tab has open. saving.js saves it, stored_documents.js has all documents.
 *
 *   a second tab opens the same document ─► the first tab has its lock (document_lock.js); the second offers a copy
 *
 * `root` receives the event "pd-document" when another document was opened or this one has a new title, "pd-documents"
 * when the list of documents has changed in any tab, and "pd-elsewhere" with a document that another tab has open.
 */

import { divided } from "./dividing.js";
import { newDocument, openingOf, titleOf } from "./document.js";
import { OWN_WAIT, TabLock, lockDocument, orRelease, withLock } from "./document_lock.js";
import { Saving } from "./saving.js";
import { StoredDocuments, copyOf } from "./stored_documents.js";
import { emit, newElement, onFrame } from "../shared/dom.js";
import { UNSAVED, keepLastDocument, lastDocument, recallPlace } from "../shared/memory.js";
import { ConnectionLost } from "../shared/transport.js";

/** @typedef {import("./document.js").Document} Document */

const LONG = 300_000; // characters; the browser takes noticeable time to lay out a longer text
const SCREEN = 10_000; // characters that fill a screen, of a long text
const MOST_STORES = 64; // that one document uses
const READ = 1 << 15; // UTF-16 units of a background's end that requests send: more than the model reads

export class Documents {
  /** @param {HTMLElement} root @param {import("../editor/start.js").Editor} editor */
  constructor(root, editor) {
    this.root = root;
    this.editor = editor;
    this.stored = new StoredDocuments(root, editor);
    this.lock = new TabLock(root);
    this.saving = new Saving(root, editor, this.stored, this.lock);
  }

  /** This tab's document, as it was saved last. */
  get current() {
    return this.saving.current;
  }

  // ---------------------------------------------------------------- the first document of a page

  /** Show the document of the link, of this tab, or the last one. Text typed meanwhile is appended to it. */
  async start() {
    try {
      await this.stored.open();
      await this.openFirst().catch((error) => {
        if (error instanceof ConnectionLost) throw error;
        this.editor.notices.toast(error.message, { long: true });
      });
    } catch (error) {
      this.saving.reportFailure(error);
    }
    this.stored.channel.addEventListener("message", ({ data }) => {
      if (data === "moved") this.stored.inTurn(() => this.followMove());
      emit(this.root, "pd-documents");
    });
    addEventListener("storage", async ({ key, newValue }) => {
      // A tab was closed and left unsaved text.
      if (!key?.startsWith(UNSAVED) || !newValue || !this.stored.store) return;
      await this.stored.saveLeftovers({ wait: true }).catch((error) => this.saving.reportFailure(error));
      this.stored.listChanged();
    });
    addEventListener("hashchange", () => {
      const id = linkedDocument();
      if (id) this.open(id).catch((error) => this.editor.notices.toast(error.message, { long: true }));
    });
    this.saving.start();
  }

  async openFirst() {
    const place = recallPlace();
    const linked = linkedDocument();
    const id = linked ?? place?.id ?? lastDocument();
    if (!id) return;
    const own = id === place?.id;
    const release = await lockDocument(id, own ? AbortSignal.timeout(OWN_WAIT) : null);
    await orRelease(release, async () => {
      const document = await this.stored.find(id);
      if (!document || document.binned !== null) return release?.();
      if (!release) return this.waitFor(document);
      const shown = await this.preview(document);
      this.show(document, release, own ? place : null, this.editor.textarea.value);
      shown();
    });
  }

  // ---------------------------------------------------------------- opening

  get title() {
    const { title } = this.current;
    return titleOf({ title, opening: openingOf(this.editor.textarea.value) });
  }

  /**
   * @param {Document} document
   * @param {(() => void) | null} release
   * @param {{caret: number[], scroll: number} | null} place
   * @param {string} typed appended to the document's text
   */
  show(document, release, place = null, typed = "") {
    this.lock.hold(release);
    this.saving.begin(document);
    const { editor } = this;
    const text = document.text + typed;
    const [start, end] = typed ? [text.length, text.length] : place?.caret ?? document.caret;
    /** @type {number[][]} */
    const typedPrivately = editor.incognito.on ? [[document.text.length, text.length]] : [];
    editor.drafts.openText(text, start, [...document.privateRanges, ...typedPrivately]);
    if (document.unsure) editor.privacy.hideAll();
    if (end !== start) editor.textarea.setSelectionRange(start, end);
    // The browser scrolls to the caret by itself only if the text has the focus.
    if (place) scrollTo(editor.textarea, place.scroll);
    else scrollToCaret(editor.textarea);
    if (document.revision) keepLastDocument(document.id);
    this.saving.keepPlace();
    this.lock.showElsewhere(null);
    emit(this.root, "pd-document");
  }

  /** Open a document, or show that another tab has it open. @param {string} id */
  open(id) {
    return this.stored.inTurn(async () => {
      if (id === this.current.id) return;
      const release = await lockDocument(id);
      await orRelease(release, async () => {
        const document = await this.stored.found(id);
        if (!release) return this.waitFor(document);
        await this.replaceBy(document, release);
      });
    });
  }

  /**
   * Save the current document, then show another.
   * @param {Document} document
   * @param {(() => void) | null} release
   */
  replaceBy(document, release) {
    return orRelease(release, async () => {
      const shown = await this.preview(document);
      try {
        await this.putAside();
        this.show(document, release);
      } finally {
        shown();
      }
    });
  }

  /**
   * Draw the first screen of a long text, because the browser takes a second or more to lay out the whole text.
   * @param {Document} document
   * @returns {Promise<() => void>} resolved when it is drawn; removes it once the whole text is
   */
  async preview({ text, caret }) {
    const sheet = this.root.querySelector(".pd-sheet");
    if (text.length < LONG || !sheet) return () => {};
    const start = caret[0] < SCREEN / 4 ? 0 : text.lastIndexOf("\n", caret[0] - SCREEN / 8) + 1;
    const drawn = newElement("div", "pd-preview pd-face");
    drawn.ariaHidden = "true";
    drawn.textContent = text.slice(start, start + SCREEN);
    sheet.append(drawn);
    await frames();
    return () => frames().then(() => drawn.remove());
  }

  /** Show an empty page. The document is created when it is first saved. */
  create() {
    return this.stored.inTurn(() => this.replaceBy(newDocument(), null));
  }

  /**
   * Save the current document before another is shown. One that the store refuses stays in this browser. One without
   * text and title is deleted.
   */
  async putAside() {
    for (let tries = 0; this.saving.dirty() && tries < 3; tries++) await this.saving.save(); // typing may continue meanwhile
    if (this.saving.dirty() && this.editor.textarea.textLength) {
      const { failure } = this.saving;
      const left = failure && !this.editor.incognito.on && this.stored.leaveRefused(this.saving.written(), failure);
      if (!left) throw new Error("The text here could not be saved. It stays open.");
    }
    const { id, revision, title } = this.current;
    if (!revision || title || this.editor.textarea.textLength) return;
    await this.stored.opened().remove(id);
    this.saving.begin(newDocument());
    this.stored.listChanged();
  }

  /**
   * Create a document with this text and show it.
   * @param {string} title
   * @param {string} text
   */
  createFrom(title, text) {
    return this.stored.inTurn(() => this.showNew(newDocument({ title, text })));
  }

  /**
   * Divide a text that is too long to be edited into several documents, and show the first. The original goes into the
   * bin once all of them are stored. In incognito they last as long as the tab, so the original stays where it is.
   * @returns {Promise<string>} what was done, for the writer
   */
  divide() {
    return this.stored.inTurn(async () => {
      await this.saving.save();
      if (this.saving.dirty()) throw new Error(`This text could not be saved, so it is not divided. ${this.saving.failure}`);
      const { id } = this.current;
      const { on: incognito } = this.editor.incognito;
      const parts = divided(this.saving.written());
      const entry = await this.stored.keepAll(parts);
      await this.replaceBy({ ...parts[0], ...entry }, await lockDocument(parts[0].id));
      if (!incognito) await withLock(id, () => this.stored.opened().putInBin(id, true));
      this.stored.listChanged();
      const where = incognito ? "stays beside them, because they are gone when this tab closes" : "is in the bin";
      return `This is the first of ${parts.length} documents. The original ${where}.`;
    });
  }

  /** @param {string} id */
  openCopy(id) {
    return this.stored.inTurn(async () => this.showNew(copyOf(await this.stored.found(id))));
  }

  /** @param {Document} document that is not stored yet */
  async showNew(document) {
    const shown = await this.preview(document); // before it is stored, which takes time too
    try {
      const entry = await this.stored.keep(document);
      this.stored.listChanged();
      await this.replaceBy({ ...document, ...entry }, await lockDocument(document.id));
    } finally {
      shown();
    }
  }

  /** Another tab has this document open: open it here once that tab releases its lock. @param {Document} document */
  waitFor(document) {
    this.lock.waitFor(document, (release, signal) => {
      this.stored.inTurn(async () => {
        await orRelease(release, async () => {
          const storedDocument = signal.aborted ? null : await this.stored.find(document.id);
          if (!storedDocument) return release();
          await this.replaceBy(storedDocument, release);
        });
      }).catch((error) => this.editor.notices.toast(error.message, { long: true }));
    });
  }

  /**
   * Use a base store in this document, or stop using it here.
   * @param {string} file
   * @param {boolean} on
   */
  useStore(file, on) {
    return this.stored.inTurn(async () => {
      const others = this.current.stores.filter((store) => store !== file);
      this.current.stores = on ? [...others, file].slice(-MOST_STORES) : others;
      if (!this.current.revision && !this.editor.textarea.textLength) return; // an empty page is saved with its first words
      this.saving.amended = true;
      await this.saving.save();
    });
  }

  /**
   * Change what this document has beside its text: the text that the model reads before it, what no draft of it contains.
   * It is saved with the document.
   * @param {{background: string} | {never: string}} change
   */
  change(change) {
    Object.assign(this.current, change);
    this.saving.amended = true;
    this.saving.textChanged({ opened: false });
  }

  /** What this document decides in every request for drafts. */
  requestFields() {
    const { stores } = this.current;
    const background = this.current.background.slice(-READ).replace(/^[\uDC00-\uDFFF]/, "").toWellFormed(); // no half pair
    return { ...(stores.length ? { base_stores: stores } : {}), ...(background.trim() ? { background } : {}) };
  }

  // ---------------------------------------------------------------- any document

  /** All documents; first those that this tab wrote in incognito. */
  list() {
    return this.stored.list(this.current.id);
  }

  /**
   * @param {string} id
   * @param {string} title empty: the first line is shown as title again
   */
  rename(id, title) {
    return this.amend(id, { title });
  }

  /** The writer says that nothing in a document is private. @param {string} id */
  makePublic(id) {
    return this.amend(id, { privateRanges: [], unsure: false });
  }

  /** @param {string} id @param {Partial<Document>} change */
  amend(id, change) {
    return this.stored.inTurn(async () => {
      if (id === this.current.id) {
        if (change.privateRanges) this.editor.privacy.open(change.privateRanges);
        Object.assign(this.current, change);
        this.saving.amended = true;
        return this.saving.save();
      }
      await withLock(id, async () => {
        await this.stored.writeOrCopy({ ...(await this.stored.found(id)), ...change });
      });
      this.stored.listChanged();
    });
  }

  /**
   * Put a document into the bin, or take it out again.
   * @param {string} id
   * @param {boolean} on
   */
  putInBin(id, on) {
    return this.stored.inTurn(async () => {
      if (id === this.current.id) await this.replaceBy(newDocument(), null);
      await withLock(id, () => this.stored.opened().putInBin(id, on));
      this.stored.listChanged();
    });
  }

  /** Every document with its text, and what is wrong with those that cannot be read. */
  all() {
    return this.stored.inTurn(async () => {
      await this.saving.save();
      return this.stored.all();
    });
  }

  /** Move all documents to the other store. New documents are stored there too. @param {"browser" | "files"} where */
  moveTo(where) {
    return this.stored.inTurn(async () => {
      await this.saving.save();
      if (this.stored.opened().where === where) return;
      await this.stored.moveTo(where);
      await this.followMove();
      this.stored.channel.postMessage("moved");
      emit(this.root, "pd-documents");
    });
  }

  /** Use the store to which all documents were moved. */
  async followMove() {
    await this.stored.followMove();
    if (!this.current.revision) return;
    const moved = await this.stored.opened().read(this.current.id);
    // This tab has the document's lock, so the moved text is the one it saved last, or an older one.
    this.saving.current = this.saving.saved({ ...this.current, revision: "", ...moved }, moved?.text ?? "");
    await this.saving.save();
  }
}

/** Two frames: the browser has drawn what the page showed before. In a hidden tab there are none. */
function frames() {
  const drawn = new Promise((done) => onFrame(() => onFrame(done)));
  return Promise.race([drawn, new Promise((done) => setTimeout(done, 1000))]);
}

/** The slash says that this is no place of the page: assistive software takes it for one otherwise. @param {string} id */
export const linkTo = (id) => `#/document=${id}`;

/** The id of the document in the address, which is then removed from it: `recallPlace` keeps the tab's document. */
function linkedDocument() {
  const id = location.hash.match(/^#\/?document=([0-9a-f-]{8,64})$/)?.[1];
  if (id) history.replaceState(null, "", location.pathname + location.search);
  return id;
}

/**
 * Scroll now, and again in the next two frames, because the browser may scroll to the caret when it draws the text.
 * @param {HTMLTextAreaElement} textarea
 * @param {number} top
 */
function scrollTo(textarea, top) {
  const { value, selectionStart } = textarea;
  const apply = () => {
    if (textarea.selectionStart === selectionStart && textarea.value === value) textarea.scrollTop = top;
  };
  apply();
  onFrame(() => {
    apply();
    onFrame(apply);
  });
}

/** @param {HTMLTextAreaElement} textarea */
function scrollToCaret(textarea) {
  if (document.activeElement !== textarea) return;
  textarea.blur();
  textarea.focus();
}
