import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { EditorView, keymap } from "@codemirror/view";
import Polydraft from "../plugin.js";

window.start = async (data) => {
  const plugin = new Polydraft({}, data);
  await plugin.onload();
  const extensions = [history(), keymap.of([...defaultKeymap, ...historyKeymap]), EditorView.lineWrapping, ...plugin.extensions];
  const view = new EditorView({ parent: document.body, extensions });
  Object.assign(window, { view, plugin, text: () => view.state.doc.toString() });
  view.focus();
};
