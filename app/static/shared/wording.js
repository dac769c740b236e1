// @ts-check
/** Formats numbers, dates, origins and errors, and shows errors in the tab of personal stores. */

import { ServerError } from "./transport.js";
import { part } from "./dom.js";

const TYPED = "typed"; // the origin of text written in the editor, and of phrases
const SHOWN = 3; // origins that a search result lists by name

/** @param {HTMLFormElement} form @param {string} name */
export function field(form, name) {
  return /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
}

/**
 * Show an error at a form, a store or the field for files.
 * @param {HTMLElement} place
 * @param {string} message
 */
export function showError(place, message) {
  const error = part(place, ".ps-error");
  error.textContent = message;
  error.hidden = false;
  const input = place instanceof HTMLFormElement ? place.querySelector("input") : null;
  input?.setAttribute("aria-invalid", "true");
  input?.setAttribute("aria-describedby", error.id);
  input?.focus();
}

/** Remove the error shown by `showError`. @param {HTMLElement} place */
export function clearError(place) {
  const error = part(place, ".ps-error");
  error.hidden = true;
  error.textContent = "";
  place.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
}

/** @param {unknown} error */
export function messageOf(error) {
  if (error instanceof ServerError) return [error.message, error.fix].filter(Boolean).join(" ");
  return error instanceof Error ? error.message : String(error);
}

/** @param {string} origin */
export function originName(origin) {
  if (origin === TYPED) return "Written here";
  return origin.includes("://") ? origin : origin.replace(/^.*\/(?=[^/]+$)/, "");
}

/** @param {Record<string, number>} from */
export function sources(from) {
  const most = Object.entries(from).sort((a, b) => b[1] - a[1]);
  const named = most.slice(0, SHOWN).map(([origin, n]) => `${originName(origin)}${most.length > 1 ? ` (${n})` : ""}`);
  return [...named, ...(most.length > SHOWN ? [`${most.length - SHOWN} more`] : [])].join(", ");
}

/** @param {number} n @param {string} noun */
export function plural(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}

const WORDS = 0.75; // of a token, in English

/** About how many words a number of tokens is. @param {number} tokens */
export function words(tokens) {
  const n = Math.round(tokens * WORDS);
  return n < 10 ? plural(n, "word") : `about ${plural(Number(n.toPrecision(2)), "word")}`;
}

/** @param {number} seconds */
export function remaining(seconds) {
  return seconds < 90 ? `${Math.max(Math.round(seconds), 1)} s` : `${Math.round(seconds / 60)} min`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1e6) return `${Math.ceil(bytes / 1000).toLocaleString()} kB`;
  return bytes < 1e9 ? `${(bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

/** The estimated time of a key. @param {number} ms */
export function aKey(ms) {
  const rounded = Number(Math.max(ms, 1).toPrecision(2));
  return rounded < 1000 ? `about ${rounded} ms a key` : `about ${rounded / 1000} s a key`;
}

/**
 * Facts in a row; lines break between them.
 * @param {(string | number | boolean | undefined)[]} facts false, 0 and "" are left out
 */
export function factsOf(...facts) {
  return facts.filter(Boolean).map((fact) => String(fact).replaceAll(" ", "\u00a0")).join("\u00a0· ");
}

const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** @param {string | number} date ISO 8601, or ms since 1970 */
export function ago(date) {
  const seconds = (new Date(date).getTime() - Date.now()) / 1000;
  /** @type {[Intl.RelativeTimeFormatUnit, number][]} */
  const units = [["year", 31_557_600], ["month", 2_629_800], ["day", 86_400], ["hour", 3600], ["minute", 60]];
  for (const [unit, length] of units) {
    if (-seconds >= length) return RELATIVE.format(Math.round(seconds / length), unit);
  }
  return "just now";
}
