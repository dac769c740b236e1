// @ts-check
/** Files that become documents: those that the writer chooses, and those that are dropped on the page. */

import { readFile } from "./files.js";
import { finder, onDo } from "../shared/dom.js";
import { plural } from "../shared/wording.js";

/**
 * @param {HTMLElement} root
 * @param {import("./documents.js").Documents} documents
 * @param {import("./document_rows.js").Panel} panel
 */
export function setUpOpeningFiles(root, documents, { run, toast, close }) {
  const chooser = /** @type {HTMLInputElement} */ (finder(root)(".dc-file"));
  onDo(root, { "open-file": () => chooser.click() });

  /** @param {Iterable<File>} files */
  async function openFiles(files) {
    for (const file of files) {
      await run(async () => {
        const read = await readFile(file);
        if ("text" in read) return documents.createFrom(read.title, read.text);
        const { added, present, problems } = await documents.stored.add(read.documents);
        const left = present ? ` ${plural(present, "document")} ${present === 1 ? "was" : "were"} here already.` : "";
        toast([`Added ${plural(added, "document")}.${left}`, ...problems].join(" "), { long: true });
      });
    }
  }

  chooser.addEventListener("change", async () => {
    close();
    await openFiles([...(chooser.files ?? [])]);
    chooser.value = "";
  });
  const hasFiles = (/** @type {DragEvent} */ { dataTransfer }) =>
    root.dataset.tab !== "stores" && Boolean(dataTransfer?.types.includes("Files"));
  root.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    root.toggleAttribute("data-dropping", true);
  });
  root.addEventListener("dragleave", (event) => {
    if (!root.contains(/** @type {Node | null} */ (event.relatedTarget))) root.removeAttribute("data-dropping");
  });
  root.addEventListener("drop", (event) => {
    root.removeAttribute("data-dropping");
    if (!hasFiles(event)) return;
    event.preventDefault();
    openFiles([...(event.dataTransfer?.files ?? [])]);
  });
}
