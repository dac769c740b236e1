// @ts-check
/**
 * The extension's worker: it alone knows the key, asks Polydraft for drafts, and knows on which sites the extension is
 * on. The scripts in pages ask it by messages; it answers those of sites that are on, and no page and no other extension.
 */

const SCRIPTS = ["fields.js", "text.js", "view.js", "content.js"];
const REGISTERED = "sites"; // the id of the scripts' registration
const DRAFTS = 3;
const TOKENS = 12;
const PORT = 7893;

/** @typedef {{sites?: string[], key?: string, port?: number, noSlurs?: boolean}} Kept what the extension keeps, in the browser alone */

// Scripts in pages may not read it: a site that takes over its own process would have the key.
const sealed = chrome.storage.local.setAccessLevel?.({ accessLevel: "TRUSTED_CONTEXTS" });

/** @returns {Promise<Kept>} */
async function kept() {
  await sealed;
  return chrome.storage.local.get(["sites", "key", "port", "noSlurs"]);
}

/** The origin of an address if pages there may have drafts; else "". @param {string | undefined} address */
function siteOf(address) {
  if (!address || !URL.canParse(address)) return "";
  const { protocol, origin } = new URL(address);
  return protocol === "http:" || protocol === "https:" ? origin : "";
}

/**
 * The pattern for a site. Patterns know no ports in Firefox, so a script asks whether its site is on.
 * @param {string} site
 */
function patternOf(site) {
  const { protocol, hostname } = new URL(site);
  return `${protocol}//${hostname}/*`;
}

// ---------------------------------------------------------------- the sites

chrome.action.onClicked.addListener(async (tab) => {
  const site = siteOf(tab.url);
  if (!site || tab.id === undefined) return;
  // Chromium grants this at installation. Firefox may not have, and asks only as the direct result of a click.
  if (!(await chrome.permissions.request({ origins: [patternOf(site)] }))) return;
  const { sites = [], key } = await kept();
  const on = !sites.includes(site);
  await keepSites(on ? [...sites, site] : sites.filter((other) => other !== site));
  await tell(site, on);
  if (on && !key) chrome.runtime.openOptionsPage();
});

/** @param {string[]} sites */
async function keepSites(sites) {
  await chrome.storage.local.set({ sites });
  const [registered] = await chrome.scripting.getRegisteredContentScripts({ ids: [REGISTERED] });
  const matches = [...new Set(sites.map(patternOf))];
  if (registered) await chrome.scripting.unregisterContentScripts({ ids: [REGISTERED] });
  if (!matches.length) return;
  await chrome.scripting.registerContentScripts([
    { id: REGISTERED, js: SCRIPTS, matches, allFrames: true, matchOriginAsFallback: true, runAt: "document_start" },
  ]);
}

/**
 * Tells all open pages of a site that it was switched on or off.
 * @param {string} site
 * @param {boolean} on
 */
async function tell(site, on) {
  const tabs = await chrome.tabs.query({ url: patternOf(site) });
  await Promise.all(tabs.filter((tab) => siteOf(tab.url) === site).map(async ({ id }) => {
    if (id === undefined) return;
    await show(id, on);
    try {
      await chrome.tabs.sendMessage(id, { kind: "switched", on });
    } catch {
      // No script is in this page yet, because it was opened before.
      if (on) await chrome.scripting.executeScript({ target: { tabId: id, allFrames: true }, files: SCRIPTS });
    }
  }));
}

/**
 * Shows on the icon whether the extension is on in a tab, or why it gives no drafts there.
 * @param {number} tabId
 * @param {boolean} on
 * @param {string} [problem]
 */
async function show(tabId, on, problem) {
  const title = on ? "Polydraft is on on this site. Click to switch it off." : "";
  try {
    await chrome.action.setBadgeText({ tabId, text: problem ? "!" : on ? "on" : "" });
    await chrome.action.setBadgeBackgroundColor({ tabId, color: problem ? "#b3261e" : "#3d6b4f" });
    await chrome.action.setTitle({ tabId, title: problem ?? title });
  } catch {
    // The tab was closed.
  }
}

chrome.tabs.onUpdated.addListener(async (tabId, change, tab) => {
  if (change.status !== "loading") return;
  const { sites = [] } = await kept();
  await show(tabId, sites.includes(siteOf(tab.url)));
});

chrome.runtime.onInstalled.addListener(async ({ reason }) => {
  const { sites = [] } = await kept();
  await keepSites(sites); // an update ends the registration
  if (reason === "install") chrome.runtime.openOptionsPage();
});

// ---------------------------------------------------------------- messages

chrome.runtime.onMessage.addListener((message, sender, respond) => {
  if (sender.id !== chrome.runtime.id) return undefined;
  answer(message, sender).then(respond);
  return true; // the response follows
});

/** @param {any} message @param {chrome.runtime.MessageSender} sender */
async function answer(message, sender) {
  const own = sender.url?.startsWith(chrome.runtime.getURL(""));
  if (own && message.kind === "pair") return pair(message.code, message.port);
  if (own && message.kind === "remove") return removeSite(message.site);
  const { sites = [] } = await kept();
  const on = sites.includes(sender.origin ? siteOf(sender.origin) : siteOf(sender.url));
  if (message.kind === "hello") return { on };
  return message.kind === "drafts" && on ? drafts(message, sender) : { texts: [] };
}

/** @param {string} site */
async function removeSite(site) {
  const { sites = [] } = await kept();
  await keepSites(sites.filter((other) => other !== site));
  await tell(site, false);
  return {};
}

// ---------------------------------------------------------------- requests to Polydraft

/** @type {Map<string, AbortController>} the running request of each frame */
const running = new Map();

/**
 * @param {{before: string, after: string, unasked: boolean}} text
 * @param {chrome.runtime.MessageSender} sender
 * @returns {Promise<{texts: string[]}>}
 */
async function drafts({ before, after, unasked }, sender) {
  const { key, port = PORT, noSlurs = true } = await kept();
  const tabId = sender.tab?.id ?? 0;
  if (!key) {
    await show(tabId, true, "Polydraft is not paired with this browser. Open the options of the extension.");
    return { texts: [] };
  }
  const frame = `${tabId}.${sender.frameId}`;
  const abort = new AbortController();
  running.get(frame)?.abort();
  running.set(frame, abort);
  const session = `browser ${frame}`; // a newer request of a frame replaces the older one
  const no_slurs = unasked && noSlurs;
  const body = { prompt: before, suffix: after, n: DRAFTS, max_tokens: TOKENS, no_slurs, user: session };
  try {
    const response = await post(port, "/v1/completions", body, key, abort.signal);
    const found = await response.json();
    if (response.ok) {
      await show(tabId, true);
      const texts = found.choices.map((/** @type {{text: string}} */ choice) => choice.text).filter(Boolean);
      return { texts: [...new Set(texts)] };
    }
    const again = response.status === 401 || response.status === 403;
    const remedy = "Polydraft no longer knows this browser. Open the options of the extension, and pair it again.";
    if (response.status !== 409) await show(tabId, true, again ? remedy : found.error.message);
  } catch (error) {
    if (!abort.signal.aborted) await show(tabId, true, `No Polydraft answers at port ${port}: start it.`);
  } finally {
    if (running.get(frame) === abort) running.delete(frame);
  }
  return { texts: [] };
}

/**
 * @param {unknown} code
 * @param {number} port
 * @returns {Promise<{problem?: string}>}
 */
async function pair(code, port) {
  try {
    const response = await post(port, "/pair", { code: String(code).slice(0, 32) });
    const found = await response.json();
    if (!response.ok) return { problem: [found.message, found.fix].filter(Boolean).join(" ") };
    await chrome.storage.local.set({ key: found.key, port });
    return {};
  } catch {
    return { problem: `No Polydraft answers at port ${port}. Start \`polydraft\` or \`polydraft serve\`.` };
  }
}

/**
 * @param {number} port
 * @param {string} path
 * @param {object} body
 * @param {string} [key]
 * @param {AbortSignal} [signal]
 */
function post(port, path, body, key, signal) {
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const init = /** @type {const} */ ({ method: "POST", credentials: "omit", cache: "no-store" });
  return fetch(`http://127.0.0.1:${port}${path}`, { ...init, headers, body: JSON.stringify(body), signal });
}

export {};
