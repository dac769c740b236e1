// @ts-check
/**
 * The options page: pairs the extension with Polydraft, lists the sites where it is on, and switches slurs off in drafts
 * that appear by themselves. The key stays in the worker.
 */

const form = /** @type {HTMLFormElement} */ (document.querySelector("form"));
const said = /** @type {HTMLElement} */ (document.querySelector("[role=status]"));
const list = /** @type {HTMLElement} */ (document.querySelector("ul"));
const none = /** @type {HTMLElement} */ (document.querySelector(".none"));
const noSlurs = /** @type {HTMLInputElement} */ (document.querySelector("[name=no-slurs]"));

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = new FormData(form);
  const { problem } = await chrome.runtime.sendMessage({
    kind: "pair",
    code: given.get("code"),
    port: Number(given.get("port")),
  });
  said.textContent = problem ?? "Paired.";
  if (!problem) form.reset();
});

noSlurs.addEventListener("change", () => chrome.storage.local.set({ noSlurs: noSlurs.checked }));

async function show() {
  /** @type {{sites?: string[], key?: string, port?: number, noSlurs?: boolean}} */
  const kept = await chrome.storage.local.get(["sites", "key", "port", "noSlurs"]);
  const { sites = [], key, port } = kept;
  noSlurs.checked = kept.noSlurs ?? true;
  if (key && !said.textContent) said.textContent = `Paired with Polydraft at port ${port}.`;
  none.hidden = sites.length > 0;
  list.replaceChildren(...sites.map((site) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.textContent = "Switch off";
    button.setAttribute("aria-label", `Switch off on ${site}`);
    button.addEventListener("click", () => chrome.runtime.sendMessage({ kind: "remove", site }));
    item.append(site, button);
    return item;
  }));
}

chrome.storage.local.onChanged.addListener(show);
await show();

export {};
