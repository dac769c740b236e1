import { baseKeymap } from "prosemirror-commands";
import { history, redo, undo } from "prosemirror-history";
import { keymap } from "prosemirror-keymap";
import { schema } from "prosemirror-schema-basic";
import { EditorState } from "prosemirror-state";
import { EditorView } from "prosemirror-view";

const plugins = [history(), keymap({ "Mod-z": undo, "Mod-y": redo }), keymap(baseKeymap)];
const view = new EditorView(document.getElementById("at"), { state: EditorState.create({ schema, plugins }) });
window.text = () => view.state.doc.textBetween(0, view.state.doc.content.size, "\n");
