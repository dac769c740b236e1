// @ts-check
/** A field for the path of another model, shown while the server has no usable model. */

import { postJson, ServerError } from "./transport.js";

/**
 * Show the field while there is no model, and remove it once there is one.
 * @param {HTMLElement} root
 * @param {boolean} unavailable
 * @param {() => void} loaded called after the server has loaded the model
 */
export function offerModel(root, unavailable, loaded) {
  const shown = root.querySelector(".pd-other-model");
  if (!unavailable || shown) {
    if (!unavailable) shown?.remove();
    return;
  }
  const form = document.createElement("form");
  form.className = "pd-other-model";
  form.innerHTML = `<label>Model file <input type="text" required maxlength="4096" spellcheck="false"></label>
    <button>Load</button> <span role="status"></span>`;
  const [input, button, status] = /** @type {[HTMLInputElement, HTMLButtonElement, HTMLElement]} */ (
    ["input", "button", "span"].map((name) => form.querySelector(name))
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    status.textContent = "The model is being loaded.";
    try {
      await postJson("/api/model", { model: input.value });
      status.textContent = "";
      loaded();
    } catch (error) {
      status.textContent = error instanceof ServerError ? error.message : "No connection to the Polydraft server.";
    } finally {
      button.disabled = false;
    }
  });
  root.querySelector(".pd-remark")?.parentElement?.after(form);
}
