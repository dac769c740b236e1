import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { EditorView, keymap } from "@codemirror/view";

const extensions = [history(), keymap.of([indentWithTab, ...defaultKeymap, ...historyKeymap]), EditorView.lineWrapping];
const view = new EditorView({ parent: document.getElementById("at"), extensions });
window.text = () => view.state.doc.toString();
