// @ts-check
/** Starts the text and its drafts: what the page and the embedded editor have in common. */

import { CaretMap } from "./caret.js";
import { dismiss, setUpOthers, showAgain } from "./commands.js";
import { Connection } from "./connection.js";
import { MOST_EDITED } from "../documents/document.js";
import { DraftList } from "./draft_list.js";
import { DraftsController } from "./drafts_controller.js";
import { DraftsView } from "./drafts_view.js";
import { Ghost } from "./ghost.js";
import { draftKeys } from "./draft_keys.js";
import { Keys } from "./keys.js";
import { Layout } from "./layout.js";
import { Notices } from "./notices.js";
import { PrivateText } from "./privacy.js";
import { Pace } from "./pace.js";
import { ReadMark } from "./read_mark.js";
import { Rewording } from "./rewording.js";
import { Revisiting } from "./revisiting.js";
import { Rows } from "./rows.js";
import { Showing } from "./showing.js";
import { Taking } from "./taking.js";
import { TextField } from "./text_field.js";
import { part } from "../shared/dom.js";
import { SETTINGS, isIncognito, recall } from "../shared/memory.js";
import { Setting } from "../panel/setting.js";
import { leave } from "../shared/transport.js";

/** The text and its drafts. @param {HTMLElement} root */
export function startEditor(root) {
  const textarea = /** @type {HTMLTextAreaElement} */ (root.querySelector("#pd-text"));
  const map = new CaretMap(textarea, part(root, ".pd-mirror"));
  const ghost = new Ghost(textarea, part(root, ".pd-ghost"), map);
  const incognito = { on: isIncognito() };
  const privacy = new PrivateText(textarea, () => incognito.on);
  const notices = new Notices(root, textarea);
  const connection = new Connection(root, notices, {
    lost: () => drafts.close(),
    found: () => {
      if (!drafts.request) drafts.requestDrafts({});
    },
  });
  const setting = new Setting(JSON.parse(document.querySelector("#pd-catalogue")?.textContent ?? ""));
  setting.recall(recall(SETTINGS) ?? {});
  const keys = new Keys(root, textarea, (time) => field.keyDown(time));
  const field = new TextField(root, textarea, map, privacy, {
    changed: (pressed) => drafts.textChanged(pressed),
    moved: () => drafts.caretMoved(),
    compositionStarted: () => drafts.clear(),
    compositionChanged: () => {
      if (drafts.busy) drafts.clear();
    },
    refused: () => notices.toast(tooMuch(textarea), { long: true }),
  });

  const rows = new Rows();
  /** The menu of a draft, in the editor that has one. @type {{menu: import("./row_menu.js").RowMenu | null}} */
  const rowMenu = { menu: null };
  const list = new DraftList(
    root, textarea, (i, offset, pressed) => taking.click(i, offset, pressed),
    (text, at, place) => rowMenu.menu?.open(text, at, place),
  );
  const layout = new Layout(root, { textarea, map, ghost, below: list.below }, setting.options, () => view.fit());
  const revisiting = new Revisiting(textarea, (start, end, taken) => showAgain(drafts, start, end, taken));
  const view = new DraftsView(
    field, rows, { ghost, list, layout }, () => revisiting.here(), (message) => notices.announce(message),
  );
  const pace = new Pace(() => incognito.on);
  const showing = new Showing(root, pace, () => drafts.showingChanged());
  pace.changed = () => showing.drawTime();
  const drafts = new DraftsController(
    root, { field, rows, view, revisiting, notices, connection, showing }, setting,
  );
  ghost.dismiss = () => dismiss(drafts);
  setUpOthers(root, drafts);
  const taking = new Taking(root, { field, view, revisiting, pace }, () => {
    layout.placeNotes();
    notices.justChanged();
  });
  new ReadMark(root, { field, notices });
  const rewording = new Rewording(root, { field, drafts, notices });
  keys.add(...draftKeys({ field, drafts, view, taking, revisiting, rewording }));

  layout.reserveRoom();
  addEventListener("pagehide", leave);
  connection.check();
  field.changed();
  /** The settings have changed: measure the room that drafts need, and request them. */
  const settingsChanged = () => {
    map.reset();
    layout.reserveRoom();
    drafts.settingsChanged();
  };
  return {
    textarea, map, incognito, privacy, notices, connection, setting, keys, field, rows, layout, revisiting, rewording, view,
    drafts, pace, showing, rowMenu, settingsChanged,
  };
}

/** @typedef {ReturnType<typeof startEditor>} Editor */

/** Why an insertion was refused. @param {HTMLTextAreaElement} textarea */
function tooMuch({ readOnly }) {
  const most = MOST_EDITED.toLocaleString("en");
  if (readOnly) return `A text of more than ${most} characters cannot be edited. Divide this document first.`;
  return `A text that can be edited has at most ${most} characters, so nothing was inserted. Open a longer one as a file.`;
}
