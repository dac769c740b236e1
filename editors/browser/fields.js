// @ts-check
/** Which fields of a page have drafts: those in which prose is written. */

/** @typedef {HTMLTextAreaElement | HTMLInputElement} PlainField */
/** @typedef {HTMLElement} Field a plain field, or the element that is edited */

/** Names of fields that hold secrets, payments or searches, where pages do not say so by type or role. */
const SECRET = new RegExp(
  "pass(word|wd|code|phrase)|pwd|secret|token|otp|one.?time|2fa|mfa|captcha|verification.?code|\\bpin\\b|" +
    "credit|debit|card.?(number|holder|name)|cc.?(num|name|exp|csc)|cvv|cvc|iban|\\bbic\\b|account.?number|routing|" +
    "sort.?code|ssn|social.?security|tax.?id|search|suche|\\bquery\\b|user.?name|\\blogin\\b|e.?mail",
  "i",
);
/** Of the autocomplete attribute, https://html.spec.whatwg.org/#autofill: what a browser fills in. */
const FILLED = /\b(cc-[\w-]+|[\w-]*password|one-time-code|username|email|tel[\w-]*|transaction-[\w-]+|bday[\w-]*)\b/;
const SMALLEST = { width: 40, height: 12 }; // pixels; smaller ones are helpers of editors that draw their text themselves

/**
 * @param {Element} element
 * @returns {element is PlainField}
 */
function isPlain(element) {
  return element instanceof HTMLTextAreaElement || element instanceof HTMLInputElement;
}

/** The element with the keyboard's focus, also inside open shadow roots. */
function focused() {
  let found = document.activeElement;
  while (found?.shadowRoot?.activeElement) found = found.shadowRoot.activeElement;
  return found;
}

/**
 * The field that an element with the focus belongs to, if drafts may be shown there; else null.
 * @param {Element | null} element
 * @returns {Field | null}
 */
function fieldOf(element) {
  if (!(element instanceof HTMLElement)) return null;
  if (isPlain(element)) {
    if (element.readOnly || element.disabled) return null;
    if (element instanceof HTMLInputElement && element.type !== "text") return null;
    return isForProse(element) ? element : null;
  }
  if (!element.isContentEditable) return null;
  let root = element;
  while (root.parentElement?.isContentEditable) root = root.parentElement;
  return isForProse(root) ? root : null;
}

/** @param {HTMLElement} field */
function isForProse(field) {
  const role = field.getAttribute("role") ?? "textbox";
  if (role !== "textbox" || field.closest('search, [role="search"], [aria-readonly="true"]')) return false;
  if (FILLED.test(field.getAttribute("autocomplete") ?? "")) return false;
  if (/^(numeric|decimal|tel|email|url|search)$/.test(field.inputMode)) return false;
  const labels = isPlain(field) ? [...(field.labels ?? [])].map((label) => label.textContent) : [];
  const names = ["name", "id", "aria-label", "placeholder", "title"].map((name) => field.getAttribute(name));
  const called = field instanceof HTMLInputElement ? [...names, ...labels] : names.slice(2);
  if (called.some((name) => name && SECRET.test(name))) return false;
  if (isPlain(field) && field.form?.querySelector('input[type="password"], [autocomplete^="cc-"]')) return false;
  const { width, height } = field.getBoundingClientRect();
  if (width < SMALLEST.width || height < SMALLEST.height) return false;
  const style = /** @type {any} */ (getComputedStyle(field));
  return style.opacity !== "0" && (style.webkitTextSecurity ?? "none") === "none";
}

/**
 * Whether the page shows a list of its own at this field, which needs Tab and the arrow keys.
 * @param {Field} field
 */
function hasOwnList(field) {
  return field.getAttribute("aria-expanded") === "true" || field.hasAttribute("aria-activedescendant");
}
