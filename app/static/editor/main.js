// @ts-check
/**
 * Starts the page: makes its parts and joins them, those of the text in start.js. The browser has all state; the server
 * only receives requests for drafts.
 *
 *   text_field.js ── the text and the caret have changed ─► drafts_controller.js ── request ─► server
 *        ▲                                                   rows │ ▲ ◄── response ──────┘
 *        │                                                        ▼ │
 *   taking.js, commands.js ◄── keys.js, a click        drafts_view.js ─► ghost.js, draft_list.js, layout.js
 *
 * Parts of the page that only follow others listen to events of `root`:
 *
 *   pd-text      the text has changed; detail: {opened: boolean}, whether a document was opened
 *   pd-taken     a draft was taken; detail: {before, text}
 *   pd-drafts    drafts for a new position have arrived
 *   pd-settled   the rows are final; detail: how many are worth showing
 *   pd-along     the drafts shown are valid for the new position too
 *   pd-cleared   there are no drafts
 *   pd-word      the writer asks what else could stand at a word of a draft; detail: the draft's text before it
 *   pd-dropped   the drafts made so far may contain text that was removed, so nothing of them is kept
 *   pd-reset     all settings are set to their defaults
 *   pd-refused   the server refused a setting; detail: {setting, message}. It is taken back and not kept: "speculation"
 *   pd-rows      the rows are drawn
 *   pd-made      a complete answer says how its drafts were made; detail: the answer
 *   pd-stats     an answer has ended; detail: what it cost and what was read, as the server sends it, and the text `before` the caret
 *   pd-figures   figures of speculation; detail: the figures or null
 *   pd-appearance  the writer has paused drafts, or chosen when they appear
 *   pd-status    the server has reported its model; detail: see connection.js
 *   pd-document, pd-documents, pd-elsewhere: see documents.js
 */

import { Appearance } from "./appearance.js";
import { setUpBackground } from "../documents/background.js";
import { setUpCounts } from "./counts.js";
import { setUpDocumentBand } from "../documents/document_band.js";
import { Documents } from "../documents/documents.js";
import { DocumentsPanel } from "../documents/documents_panel.js";
import { Never } from "../documents/never.js";
import { RowMenu } from "./row_menu.js";
import { Find } from "./find.js";
import { setUpLarger } from "./larger.js";
import { Learning } from "./learning.js";
import { setUpPairing } from "./pairing.js";
import { setUpPrint } from "./print.js";
import { startEditor } from "./start.js";
import { setUpTools } from "./tools.js";
import { emit, onDo, part } from "../shared/dom.js";
import { setUpModels } from "../shared/model.js";
import { Panel } from "../panel/panel.js";
import { setUpTabs } from "../shared/tabs.js";

/** @typedef {import("./start.js").Editor} Editor */

/**
 * Start the page inside `element`, once.
 * @param {HTMLElement} element
 * @param {() => void} redraw lets Gradio ask for the panel's fields: see panel.js
 */
export function mount(element, redraw) {
  const root = part(element, ".polydraft");
  if (root.dataset.mounted) return;
  root.dataset.mounted = "true";
  // Let a phone's keyboard shrink the page instead of covering the drafts.
  const viewport = document.querySelector("meta[name=viewport]");
  viewport?.setAttribute("content", "width=device-width, initial-scale=1, interactive-widget=resizes-content");

  const editor = startEditor(root);
  const documents = new Documents(root, editor);
  const never = new Never(root, documents, editor.drafts);
  editor.drafts.documentFields = () => ({ ...documents.requestFields(), ...never.requestFields() });
  const learning = startPanels(root, editor, documents, redraw);
  setUpRowMenu(root, editor, never);
  const { counters } = editor.drafts;
  // Tests and measurements read the state of the page there.
  documents.start().then(() => Object.assign(window, { polydraft: { ...editor, documents: documents.saving, learning, counters } }));
}

/**
 * The parts around the text.
 * @param {HTMLElement} root
 * @param {Editor} editor
 * @param {Documents} documents
 * @param {() => void} redraw lets Gradio draw the panel's fields
 */
function startPanels(root, editor, documents, redraw) {
  const { textarea, notices, connection, keys, field, drafts } = editor;
  const toast = notices.toast.bind(notices);

  setUpTools(root, editor);
  const learning = new Learning(root, editor, drafts);
  setUpTabs(root, async () => (await import("../stores/stores.js")).open(root, { learning, pace: editor.pace, documents }), {
    write: () => {
      drafts.forgetAnswers(); // the stores may have changed, so cached answers are outdated
      learning.refresh({ anew: true });
      if (matchMedia("(pointer: fine)").matches) textarea.focus();
      drafts.requestDrafts({});
    },
    leave: () => drafts.abort(),
    toast,
  });
  const models = setUpModels(root, () => {
    connection.check();
    drafts.settingsChanged(); // requests drafts of the new model
  }, toast);
  setUpLarger(root);
  const panel = new Panel(root, editor, new Appearance(root, editor), { models, pair: setUpPairing(root) }, redraw);
  Object.assign(window, { polydraftPanel: panel });
  onDo(root, { panel: () => panel.toggle(), view: () => panel.openView(), reword: () => editor.rewording.open() });
  keys.add({
    id: "panel", usual: "Alt+P", does: "Show or hide the panel", everywhere: true,
    run() {
      panel.toggle();
      return true;
    },
  });
  addEventListener("hashchange", () => panel.followLink());
  panel.followLink();
  new DocumentsPanel(root, documents, editor);
  setUpDocumentBand(root, documents, editor);
  setUpBackground(root, documents, drafts);
  new Find(root, field, keys);
  setUpPrint(root, () => textarea.value);
  setUpCounts(root, field, () => documents.current.keys, (now) => editor.pace.typed(now));
  return learning;
}

/**
 * @param {HTMLElement} root
 * @param {Editor} editor
 * @param {Never} never
 */
function setUpRowMenu(root, { textarea, notices, rowMenu, keys, view }, never) {
  keys.add({
    id: "menu", usual: "Alt+M", mac: "Ctrl+Meta+M",
    does: "Open the menu of the highlighted draft: never suggest a word of it again",
    run() {
      if (!view.listed.length || view.active < 0) return false;
      view.list.openMenu(view.active);
      return true;
    },
  });
  rowMenu.menu = new RowMenu(root, {
    refuse: (phrase) => {
      const undo = never.add(phrase);
      notices.toast(`“${phrase}” is never suggested again.`, { undo });
    },
    look: (part) => emit(root, "pd-word", part),
    open: () => {
      part(root, "[data-do=documents]").click();
      never.section.open = true;
      never.section.scrollIntoView({ block: "nearest" });
      never.boxes[0].focus();
    },
    back: () => textarea.focus(),
  });
}
