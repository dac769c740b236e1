// @ts-check
/**
 * The actions on drafts that have keys. Conflicts of the usual keys with other uses:
 *
 * - Alt+digit and Alt+Shift+digit: Chrome and Firefox on Linux switch tabs with Alt+digit, but a page may use the key.
 *   Neither uses it with Shift, nor do Windows, GNOME and KDE (they use Super). Firefox uses Alt+Shift for access keys,
 *   and this page has none. Windows switches keyboard layouts with Alt+Shift only if no key is pressed in between. Where
 *   a Linux desktop switches as soon as both are down, Alt+arrows and then Ctrl+→ do the same.
 * - macOS types characters with Option and a digit, with Shift and without; the page uses them only while drafts are shown.
 * - Alt+← is "back" in browsers; the page uses it only after a draft was taken. On a Mac Option+← still moves by a word.
 */

import { dismiss, requestHere, showOthers } from "./commands.js";
import { goOnWithList, indentation } from "./lists.js";
import { insertAsTyped } from "./inserting.js";

/**
 * @param {{field: import("./text_field.js").TextField, drafts: import("./drafts_controller.js").DraftsController,
 *          view: import("./drafts_view.js").DraftsView, taking: import("./taking.js").Taking,
 *          revisiting: import("./revisiting.js").Revisiting, rewording: import("./rewording.js").Rewording}} parts
 * @returns {import("./keys.js").Key[]}
 */
export function draftKeys({ field, drafts, view, taking, revisiting, rewording }) {
  const listed = () => view.listed.length > 0;
  /** What indents the caret's line; "" if the caret is not at its beginning, or the text is read-only. */
  const indent = () => (field.textarea.readOnly ? "" : indentation(field.text, field.textarea));
  /** @param {1 | -1} by */
  const move = (by) => {
    if (view.open && listed()) view.move(by);
    else if (by > 0) requestHere(drafts);
    else return false;
    field.engage(true);
    return true;
  };
  return [
    {
      id: "take", usual: "Tab",
      does: "Take the best draft, or the highlighted one",
      hint: "take",
      run() {
        if (!field.engaged || (indent() && !taking.best)) return false;
        if (taking.takeBest()) return true;
        // Tab pressed for a ghost that has just disappeared must not move the focus out of the text.
        return drafts.request !== null && performance.now() - field.lastInput < 600;
      },
    },
    {
      usual: "Tab", shares: true,
      does: "At the beginning of a line without a draft: indent it",
      run() {
        if (!field.engaged || !indent()) return false;
        if (field.hasRoomFor(indent())) insertAsTyped(field.textarea, indent());
        return true;
      },
    },
    {
      id: "word", usual: "Ctrl+Right", mac: "Alt+Right",
      does: "Take one word of it; without a draft, move by a word",
      hint: "a word",
      mirrored: () => view.ghost.line.dir === "rtl",
      run: () => taking.takeWordOfBest(),
    },
    {
      id: "number", usual: "Alt+1…9",
      does: "Take the draft with that number",
      hint: "that one",
      run: (n) => taking.takeRow(n - 1) || view.shows(n - 1),
    },
    {
      id: "number-word", usual: "Alt+Shift+1…9",
      does: "Take the first word of the draft with that number",
      hint: "its first word",
      run: (n) => taking.takeWordOfRow(n - 1) || view.shows(n - 1),
    },
    { id: "next", usual: "Alt+Down", does: "Go to the next draft; if there are none, request them here", run: () => move(1) },
    { id: "previous", usual: "Alt+Up", does: "Go to the draft above", run: () => move(-1) },
    {
      id: "others", usual: "Alt+R", mac: "Ctrl+Meta+R",
      does: "Other drafts: those that begin differently from all that were shown here",
      run: () => showOthers(drafts, 1),
    },
    {
      id: "earlier", usual: "Alt+Shift+R", mac: "Ctrl+Meta+Shift+R",
      does: "Go back to the drafts before",
      run: () => showOthers(drafts, -1),
    },
    {
      id: "reword", usual: "Alt+Up", shares: true,
      does: "On a word, or on up to eight selected words: show what else could stand there",
      run: () => rewording.open(),
    },
    {
      id: "back", usual: "Alt+Left", mac: "Ctrl+Meta+Left",
      does: "Go back to a draft that you took and show its list again; taking another draft replaces it",
      run: () => revisiting.walk(-1),
    },
    {
      id: "forward", usual: "Alt+Right", mac: "Ctrl+Meta+Right",
      does: "Return from there",
      run: () => revisiting.walk(1),
    },
    {
      id: "dismiss", usual: "Esc",
      does: "Dismiss the drafts; then Tab leaves the editor",
      hint: "dismiss",
      run() {
        const { busy } = drafts;
        if (busy) dismiss(drafts);
        field.engage(false);
        return busy;
      },
    },
    {
      usual: "Enter",
      does: "In a list: go on with the next item; on an empty item: end the list",
      run: () => goOnWithList(field.textarea, (text) => field.hasRoomFor(text)),
    },
    { usual: "Ctrl+Z", mac: "Meta+Z", does: "Undo taking a draft" },
  ];
}
