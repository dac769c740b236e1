// @ts-check
/**
 * The choice of the model: a dialog with the models on this machine and those worth a download, and a field for a path,
 * which is also shown below the text while the server has no usable model. The present model drafts until another one
 * is loaded.
 */

import { newElement, part, setText } from "./dom.js";
import { Downloads } from "./downloads.js";
import { RequestFailed, getJson, postJson, streamLines } from "./transport.js";
import { aKey, factsOf, size } from "./wording.js";

/** @typedef {{model: string, name: string, bytes: number, serving: boolean, program?: string}} Offered */
/** What a model's file says. @typedef {{model: string, type: string, family: string, compiled: boolean, reason: string, ms: number | null}} Details */

/**
 * Show the field while there is no model, and remove it once there is one.
 * @param {HTMLElement} root
 * @param {boolean} unavailable
 * @param {() => void} loaded called after the server has loaded the model
 */
export function offerModel(root, unavailable, loaded) {
  const shown = root.querySelector(".pd-foot .pd-other-model");
  if (!unavailable) shown?.remove();
  else if (!shown) root.querySelector(".pd-foot .pd-remark")?.parentElement?.after(newField(loaded));
}

/** A form with a field for the path of a model. @param {() => void} loaded */
function newField(loaded) {
  const form = newElement("form", "pd-other-model", `
    <label>Model file <input type="text" required maxlength="4096" spellcheck="false"></label>
    <button>Load</button> <span role="status"></span>`);
  const input = part(form, "input");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    load(input.value, form, loaded);
  });
  return form;
}

/**
 * Load a model and show the progress, or the server's error, in the element with the role "status".
 * @param {string} model a name or a path
 * @param {HTMLElement} place contains that element
 * @param {() => void} loaded
 */
async function load(model, place, loaded) {
  const around = place.closest("dialog") ?? place;
  const buttons = [.../** @type {NodeListOf<HTMLButtonElement>} */ (around.querySelectorAll("button.md-load, .pd-other-model button"))];
  const said = place.querySelector("[role=status]");
  for (const button of buttons) button.disabled = true;
  setText(said, "The model is being loaded.");
  try {
    const exact = /** @type {HTMLInputElement | null} */ (around.querySelector(".md-exact input"));
    await postJson("/api/model", exact?.checked ? { model, precision: "file" } : { model });
    setText(said, "");
    loaded();
  } catch (error) {
    if (!(error instanceof RequestFailed)) throw error;
    setText(said, error.message);
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

/**
 * Set up the dialog. Returns a function that opens it.
 * @param {HTMLElement} root
 * @param {() => void} loaded called after the server has loaded another model
 * @param {(message: string, options: {long: boolean}) => void} toast
 */
export function setUpModels(root, loaded, toast) {
  const dialog = /** @type {HTMLDialogElement} */ (root.querySelector(".pd-models"));
  const list = part(dialog, ".md-list");
  const worth = part(dialog, ".md-worth");
  const downloads = new Downloads(worth, {
    use: (path, title) => load(path, worth, () => {
      changed();
      setText(worth.querySelector("[role=status]"), `${title} drafts now, until Polydraft is closed. To start with it: polydraft --model ${quoted(path)}`);
    }),
    ended: (title) => (dialog.open ? show() : toast(`${title} is downloaded. To use it: This page, Model, in the panel`, { long: true })),
  });
  const form = newField(() => changed());
  dialog.querySelector(".md-folder")?.after(form);
  /** By model; kept, so that no row grows when the dialog is opened again. @type {Map<string, Details>} */
  const known = new Map();
  let reading = new AbortController();

  function changed() {
    loaded();
    show();
  }

  /** Show the models at once, and what their files say as the server reads them. */
  async function show() {
    reading.abort();
    reading = new AbortController();
    const { signal } = reading;
    downloads.show();
    try {
      const { folder, models, elsewhere, loading } = /** @type {{folder: string, models: Offered[], elsewhere: Offered[], loading: string}} */ (await getJson("/api/models"));
      if (signal.aborted) return;
      setText(dialog.querySelector(".md-folder code"), folder);
      const items = new Map([...models, ...elsewhere].map((offered) => [offered.model, { offered, item: newModel(offered) }]));
      list.replaceChildren(...[...items.values()].map(({ item }) => item));
      if (loading) setText(form.querySelector("span"), `${loading} is being loaded.`);
      await streamLines("/api/models/details", (/** @type {Details} */ details) => {
        known.set(details.model, details);
        const shown = items.get(details.model);
        if (shown) describe(shown.item, shown.offered);
      }, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof RequestFailed)) throw error;
      setText(form.querySelector("span"), error.message);
    }
  }

  /** @param {Offered} offered */
  function newModel(offered) {
    const { model, name, serving } = offered;
    const item = newElement("li", serving ? "md-serving" : "", `<span><b></b> <small></small> <small class="md-reason"></small></span> <button type="button" class="md-load">Load</button>`, { b: name });
    describe(item, offered);
    const button = part(item, "button");
    button.hidden = serving;
    button.setAttribute("aria-label", `Load ${name}`);
    button.addEventListener("click", () => load(model, form, changed));
    item.title = model;
    return item;
  }

  /** @param {HTMLElement} item @param {Offered} offered */
  function describe(item, { model, bytes, serving, program }) {
    const { type = "", family = "", compiled = false, reason = "", ms = null } = known.get(model) ?? {};
    const facts = [serving && "drafting now", bytes && size(bytes), type, family, compiled && "compiled", ms !== null && aKey(ms), program && `of ${program}`];
    setText(item.querySelector("small"), factsOf(...facts));
    setText(item.querySelector(".md-reason"), reason);
  }

  dialog.addEventListener("close", () => reading.abort());
  function open() {
    for (const said of dialog.querySelectorAll("[role=status]")) setText(said, "");
    dialog.showModal();
    show();
  }
  root.querySelector(".lg-open")?.addEventListener("click", open);
  return open;
}

/** A path as a shell takes it. @param {string} path */
function quoted(path) {
  return /^[\w@%+=:,./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}
