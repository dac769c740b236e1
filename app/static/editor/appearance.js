// @ts-check
/**
 * The page's appearance: font, size, width and spacing of the text; focus mode, which shows only text and drafts; and
 * the line shown in place of drafts while drafts are paused or the model loads.
 */

import { drawSlider, finder } from "../shared/dom.js";
import { VIEW, attempt, keep, recall } from "../shared/memory.js";
import { Popup } from "../shared/popup.js";

const FOCUS = "polydraft.focus"; // in sessionStorage: one value per tab

/**
 * @param {HTMLElement} root
 * @param {{focusText: () => void, measure: () => void, pause: (on: boolean) => void,
 *          addKeys: (...keys: import("./keys.js").Key[]) => void}} page `measure`: the text's column or font has changed
 */
export function setUpAppearance(root, { focusText, measure, pause, addKeys }) {
  const find = finder(root);
  const box = find("#pd-view");
  const inputs = /** @type {HTMLInputElement[]} */ ([...box.querySelectorAll("input")]);
  const popup = new Popup(find("[data-do=view]"), box, { back: focusText });

  // ---------------------------------------------------------------- font, size, width, spacing

  /** @returns {Record<string, string>} the values of the inputs by name */
  function chosen() {
    const read = inputs.filter(({ type, checked }) => type !== "radio" || checked);
    return Object.fromEntries(read.map(({ name, value }) => [name.replace("vw-", ""), value]));
  }

  function apply() {
    const { font, size, width, spacing } = chosen();
    root.dataset.font = font;
    root.style.setProperty("--size", String(Number(size) / 100));
    root.style.setProperty("--measure", `${Number(width) / 2}em`); // `width` is in letters of about half an em
    root.style.setProperty("--leading", spacing);
    for (const [name, shown] of [["size", `${size}\u00a0%`], ["width", `${width} letters`], ["spacing", Number(spacing).toFixed(1)]]) {
      const input = /** @type {HTMLInputElement} */ (find(`#vw-${name}`));
      drawSlider(input, Number(input.value), shown);
    }
    measure();
  }

  const kept = recall(VIEW) ?? {};
  for (const input of inputs) {
    const value = kept[input.name.replace("vw-", "")];
    if (input.type === "radio") input.checked = value === undefined ? input.defaultChecked : input.value === value;
    else if (value !== undefined) input.value = String(value); // the browser clamps it to min and max
    input.addEventListener("input", () => {
      apply();
      keep(VIEW, chosen());
    });
  }
  if (!inputs.some(({ type, checked }) => type === "radio" && checked)) inputs[0].checked = true;
  apply();
  find("[data-do=view-reset]").addEventListener("click", () => {
    for (const input of inputs) {
      if (input.type === "radio") input.checked = input.defaultChecked;
      else input.value = input.defaultValue;
    }
    apply();
    keep(VIEW, null);
  });

  // ---------------------------------------------------------------- focus mode

  /** @param {boolean} on */
  function focusMode(on) {
    root.toggleAttribute("data-focus", on);
    attempt(() => sessionStorage.setItem(FOCUS, on ? "on" : "off"));
    if (on) popup.close();
    find(".pd-leave-focus").hidden = !on;
    measure();
    focusText();
  }

  find("[data-do=focus]").addEventListener("click", () => focusMode(true));
  find(".pd-leave-focus").addEventListener("click", () => focusMode(false));
  if (attempt(() => sessionStorage.getItem(FOCUS)) === "on") focusMode(true);

  // ---------------------------------------------------------------- pausing, and waiting for the model

  const line = find(".pd-state");
  const pauseButton = find("[data-do=pause]");
  let paused = false;
  let loading = false;

  function drawState() {
    pauseButton.setAttribute("aria-pressed", String(paused));
    line.hidden = !paused && !loading;
    if (paused) line.innerHTML = `Drafts are paused. ${find("[data-key=pause]").innerHTML} brings them back.`;
    else if (loading) line.textContent = "Starting…";
  }

  function togglePause() {
    paused = !paused;
    pause(paused);
    drawState();
    focusText();
  }

  pauseButton.addEventListener("click", togglePause);
  root.addEventListener("pd-status", (event) => {
    loading = /** @type {CustomEvent} */ (event).detail.backend === "loading";
    drawState();
  });

  // ---------------------------------------------------------------- keys

  addKeys(
    {
      id: "pause", usual: "Alt+0", does: "Pause drafts, or bring them back", everywhere: true,
      run() {
        togglePause();
        return true;
      },
    },
    {
      id: "focus", usual: "Alt+Enter", does: "Focus mode: text and drafts only", everywhere: true,
      run() {
        focusMode(!root.hasAttribute("data-focus"));
        return true;
      },
    },
  );
}
