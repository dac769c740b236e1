// @ts-check
/**
 * Names of keys with their modifiers, such as “Ctrl+Right”, “Alt+1…9”, “Esc”. Pure functions.
 *
 * A digit is identified by its place on the keyboard: Shift and Option change the character, and on French and Czech
 * keyboards the digits themselves need Shift. Digits of the keypad count only without Shift: with Num Lock they turn into
 * arrows then. AltGr does not count as Alt: it types characters on most European layouts (it reports Control and Alt
 * together, or AltGraph; neither is the name of Alt alone).
 */

import { keyCaps } from "../shared/dom.js";
import { MAC } from "../shared/platform.js";

/** @type {Record<string, string>} */
const NAMES = {
  ArrowLeft: "Left", ArrowRight: "Right", ArrowUp: "Up", ArrowDown: "Down", Escape: "Esc", " ": "Space",
};
/** @type {Record<string, string>} */
const SHOWN = { Left: "←", Right: "→", Up: "↑", Down: "↓" };
/** @type {Record<string, string>} */
const MODIFIERS = MAC ? { Ctrl: "⌃", Alt: "⌥", Shift: "⇧", Meta: "⌘" } : { Meta: "Win" };

/** The name of a pressed key; "" for a modifier alone. @param {KeyboardEvent} event */
export function comboOf(event) {
  const { key, code, altKey, ctrlKey, metaKey, shiftKey } = event;
  if (/^(?:Alt|AltGraph|Control|Meta|Shift|CapsLock|Dead|Process|Unidentified)$/.test(key)) return "";
  if (event.getModifierState("AltGraph")) return "";
  const digit = code.match(shiftKey ? /^Digit(\d)$/ : /^(?:Digit|Numpad)(\d)$/)?.[1];
  const letter = altKey ? code.match(/^Key([A-Z])$/)?.[1] : undefined; // Option changes the character of a letter
  const name = digit ?? letter ?? NAMES[key] ?? (key.length === 1 ? key.toUpperCase() : key);
  const held = [ctrlKey && "Ctrl", altKey && "Alt", shiftKey && "Shift", metaKey && "Meta"].filter(Boolean);
  return [...held, name].join("+");
}

/**
 * Whether a pressed key is that of an action: its digit, or 0 if the action's key has none; null if it is not.
 * @param {string} pressed
 * @param {string} combo of the action
 * @param {boolean} mirrored whether left and right are exchanged
 */
export function matches(pressed, combo, mirrored) {
  const wanted = mirrored ? combo.replace(/Left|Right/, (side) => (side === "Left" ? "Right" : "Left")) : combo;
  if (pressed === wanted) return 0;
  const digit = pressed.match(/(?:^|\+)([1-9])$/)?.[1];
  return digit && pressed.replace(/[1-9]$/, "1…9") === wanted ? Number(digit) : null;
}

/**
 * The key as caps, in HTML; `short`: with “⇧” for Shift.
 * @param {string} combo
 * @returns {string}
 */
export function caps(combo, short = false) {
  if (short) return caps(combo).replace(">Shift<", ">⇧<");
  const shown = combo.split("+").map((name) => MODIFIERS[name] ?? SHOWN[name] ?? name.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`));
  return keyCaps(shown);
}

const ALONE = /^(?:Tab|Esc|Right|End|Insert|F\d{1,2})$/; // keys that an action may have without a modifier
const TAKEN = /^(?:Ctrl|Meta)\+[ACLNPQRSTVWXYZ]$/;

/** Why no action can have this key; "" if one can. @param {string} combo */
export function problemOf(combo) {
  const held = combo.split("+").slice(0, -1);
  if (!held.some((name) => name !== "Shift") && !ALONE.test(combo)) return "The text itself needs that key. Hold Ctrl or Alt with it.";
  return TAKEN.test(combo) ? "The browser or the text uses that key already." : "";
}
