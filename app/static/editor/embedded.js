// @ts-check
/**
 * The editor as a component of somebody else's Gradio page (app/web/draft_editor.py):
 *
 *   the text ── after a moment, and when the focus leaves ─► props.value ─► the event "change"
 *   a draft is taken ─► "take"; drafts are complete ─► "drafts"
 *   value or options from Python ── watch ─► the text, the next request
 *   a slider ── window.polydraftEditor.set(option, value) ─► the next request, without one to Python
 *
 * Nothing is stored in the browser, and nothing is learned.
 */

import { startEditor } from "./start.js";
import { on, part } from "../shared/dom.js";
import { storeNothing } from "../shared/memory.js";
import { Timers } from "../shared/timers.js";
import { getJson, useKey } from "../shared/transport.js";

const STYLES = ["./editor.css", "./embedded.css"];
const TOLD_AFTER = 150; // ms without a change until Gradio has the text

/** @typedef {import("../panel/setting.js").Value} Value */
/**
 * What Gradio gives a component's script, and the options that were set before this one ran.
 * @typedef {{element: HTMLElement, props: {value: string | null, label: string | null, placeholder: string, options: Record<string, Value>, access: string},
 *            trigger: (event: string, data?: object) => void, watch: (prop: string, changed: () => void) => void,
 *            early: Record<string, Value>}} Component
 */

/** Start the editor, once. @param {Component} component */
export async function mount({ element, props, trigger, watch, early }) {
  const root = part(element, ".polydraft");
  if (root.dataset.mounted) return;
  root.dataset.mounted = "true";
  useKey(props.access);
  storeNothing();
  const [catalogue] = await Promise.all([getJson("/api/catalogue"), ...STYLES.map(loaded)]);
  root.append(asData("pd-catalogue", catalogue));

  const editor = startEditor(root);
  const { textarea, field, drafts, rows, setting, notices } = editor;
  textarea.placeholder = props.placeholder;
  if (props.label) textarea.setAttribute("aria-label", props.label);

  /**
   * Set options; a wrong one is refused with all others, and the writer is told.
   * @param {Record<string, Value>} given by flag
   */
  const choose = (given) => {
    const message = setting.wrong(given) || setting.beyond({ ...setting.values, ...given });
    notices.notice("options", message ? { message } : null);
    if (message) return;
    setting.setAll(given);
    editor.settingsChanged();
  };
  const open = () => {
    const text = props.value ?? "";
    if (text === textarea.value) return;
    drafts.clear();
    field.open(text, text.length, [], { opened: false });
  };
  choose({ ...props.options, ...early });

  const timers = new Timers();
  const tell = () => {
    timers.stop("value");
    if ((props.value ?? "") !== textarea.value) props.value = textarea.value;
  };
  tell(); // what was typed before
  root.addEventListener("pd-text", () => timers.later("value", TOLD_AFTER, tell));
  textarea.addEventListener("blur", tell); // whoever clicks a button next sends the text that stands there
  on(root, "pd-taken", (taken) => {
    tell();
    trigger("take", taken);
  });
  root.addEventListener("pd-settled", () => {
    if (drafts.request?.done) trigger("drafts", { drafts: rows.all.flatMap(asEvent) });
  });
  on(root, "pd-refused", (problem) => notices.notice("server", problem));
  watch("value", open);
  watch("placeholder", () => (textarea.placeholder = props.placeholder));
  watch("options", () => {
    setting.reset();
    choose(props.options);
  });
  Object.assign(window, { polydraftEditor: { set: (/** @type {string} */ flag, /** @type {Value} */ value) => choose({ [flag]: value }) } });
}

/** A row in the event "drafts". @param {import("./rows.js").Row} row */
const asEvent = ({ draft, rest, live }) => (draft && live ? [{ text: rest, probability: draft.probability }] : []);

/**
 * Data in an element, where `startEditor` reads it.
 * @param {string} id
 * @param {object} data
 */
function asData(id, data) {
  const script = document.createElement("script");
  script.type = "application/json";
  script.id = id;
  script.textContent = JSON.stringify(data);
  return script;
}

/** A style sheet beside this script, once it is loaded. @param {string} path */
function loaded(path) {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL(path, import.meta.url).href;
  const done = new Promise((resolve, reject) => {
    link.onload = resolve;
    link.onerror = () => reject(new Error(`${link.href} cannot be loaded.`));
  });
  document.head.append(link);
  return done;
}
