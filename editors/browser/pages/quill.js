import Quill from "quill";

const quill = new Quill("#at", {});
window.text = () => quill.getText().replace(/\n$/, "");
