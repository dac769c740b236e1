// @ts-check
/**
 * What the writer asks for beside typing: drafts here, others than those shown, those before, drafts with a chosen
 * beginning, those from which one was taken, or none.
 */

import { onDo } from "../shared/dom.js";

/** @typedef {import("./drafts_controller.js").DraftsController} DraftsController */

/** Request drafts, also where none appear automatically. @param {DraftsController} drafts */
export function requestHere(drafts) {
  drafts.field.readCaret();
  drafts.view.asked = true;
  drafts.timers.stop("moved"); // its request would replace this one, and keep what it has shown so far
  drafts.dismissed = false;
  drafts.requestDrafts({ wanted: true });
  drafts.draw();
}

/**
 * Show drafts that begin differently from all that were shown for this text, or with `by` -1 the ones before.
 * @param {DraftsController} drafts
 * @param {1 | -1} by
 * @returns {boolean} whether there is a place for drafts
 */
export function showOthers(drafts, by) {
  const { others, rows, view } = drafts;
  drafts.field.readCaret();
  const before = drafts.before();
  if (before === null) return false;
  if (!others.knows(before)) {
    if (by > 0) requestHere(drafts);
    return true;
  }
  drafts.timers.stop("moved", "refresh", "grow", "pause");
  drafts.growWaits = drafts.dismissed = false;
  drafts.pausing = view.asked = true;
  const known = by > 0 ? others.next() : others.back();
  if (known) {
    drafts.abort();
    rows.all = known.map((row) => ({ ...row }));
    drafts.draw();
  } else if (by > 0) {
    rows.clear();
    drafts.requestDrafts({ wanted: true });
    drafts.draw();
  }
  return true;
}

/** No other drafts are likely: say so, and show the earlier ones again. @param {DraftsController} drafts */
export function nothingElse(drafts) {
  drafts.notices.toast("Nothing else is likely here. These are the drafts before.");
  drafts.notices.announce("Nothing else is likely here.");
  showOthers(drafts, -1);
}

/**
 * The buttons *Other drafts* and *Earlier drafts*.
 * @param {HTMLElement} root
 * @param {DraftsController} drafts
 */
export function setUpOthers(root, drafts) {
  const show = (/** @type {1 | -1} */ by) => {
    showOthers(drafts, by);
    drafts.field.textarea.focus();
  };
  onDo(root, { others: () => show(1), earlier: () => show(-1) });
}

/**
 * Start a draft with a text that the writer chose: in a free row, or in the lowest one that was not chosen so. It stays
 * until the next key.
 * @param {DraftsController} drafts
 * @param {string} chosen a token, which may begin with letters that are typed already, after a part of a draft
 */
export function startWith(drafts, chosen) {
  const before = drafts.before();
  const text = before === null ? "" : withoutTyped(before, chosen);
  if (before === null || !text) return;
  drafts.dismissed = false;
  drafts.rows.resize(drafts.k);
  drafts.rows.begin(before, text);
  drafts.draw();
  drafts.requestDrafts({ wanted: true, keep: true });
}

/**
 * Compute the next word for the charts, where the writer sees no drafts of it.
 * @param {DraftsController} drafts
 * @param {string} part of a draft, after which it stands; "" for the caret
 */
export function look(drafts, part) {
  const caret = drafts.before();
  if (caret === null) return;
  const settings = { ...drafts.setting.request(), k: 1, length: 1 };
  drafts.send(caret + part, settings, drafts.documentFields(), { unseen: true });
}

/** Let answers say how drafts were made, from now on. @param {DraftsController} drafts @param {boolean} on */
export function explain(drafts, on) {
  if (on === drafts.explains) return;
  drafts.explains = on;
  if (on) drafts.settingsChanged();
}

/**
 * Show the rows from which a draft was taken, and select that draft in the text.
 * @param {DraftsController} drafts
 * @param {number} start
 * @param {number} end
 * @param {import("./rows.js").Row[]} rows
 */
export function showAgain(drafts, start, end, rows) {
  const { field, view } = drafts;
  drafts.abort();
  drafts.timers.stop("moved", "refresh", "grow");
  field.textarea.setSelectionRange(start, end);
  field.readCaret();
  drafts.dismissed = false;
  view.asked = true;
  drafts.rows.all = rows.map((row) => ({ ...row }));
  field.engage(true);
  drafts.pausing = true;
  view.draw({ decides: drafts.decides, since: -Infinity }); // the writer has read them when they stood here
}

/** @param {DraftsController} drafts */
export function dismiss(drafts) {
  const { textarea } = drafts.field;
  if (drafts.revisiting.here()) textarea.setSelectionRange(textarea.selectionEnd, textarea.selectionEnd);
  drafts.clear();
  drafts.timers.stop("moved");
  drafts.dismissed = true;
  drafts.notices.announce("Drafts dismissed.");
}

/**
 * A text without its beginning that is typed already.
 * @param {string} before
 * @param {string} text
 */
function withoutTyped(before, text) {
  let typed = Math.min(before.length, text.length - 1);
  while (typed > 0 && !before.endsWith(text.slice(0, typed))) typed--;
  return text.slice(typed);
}
