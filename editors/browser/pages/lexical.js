import { createEmptyHistoryState, registerHistory } from "@lexical/history";
import { registerPlainText } from "@lexical/plain-text";
import { $getRoot, createEditor } from "lexical";

const root = document.createElement("div");
root.contentEditable = "true";
document.getElementById("at").append(root);
const editor = createEditor({ namespace: "page", onError: (error) => { throw error; } });
editor.setRootElement(root);
registerPlainText(editor);
registerHistory(editor, createEmptyHistoryState(), 300);
window.text = () => editor.getEditorState().read(() => $getRoot().getTextContent());
