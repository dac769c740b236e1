/** Names of keys. */

import assert from "node:assert/strict";
import test from "node:test";

import { comboOf, matches, problemOf } from "../../../../app/static/editor/combos.js";

/** The name of a pressed key; `held`: "Alt Shift", as a browser reports them. */
const pressed = (code, key, held = "") => comboOf({
  code, key, altKey: held.includes("Alt"), ctrlKey: held.includes("Control"), shiftKey: held.includes("Shift"),
  metaKey: held.includes("Meta"), getModifierState: (name) => held.split(" ").includes(name),
});

test("a digit is the key at its place, on any keyboard, and AltGr is no Alt", () => {
  for (const [code, key, held, name] of [
    ["Digit3", "3", "Alt", "Alt+3"],
    ["Digit3", "3", "Alt Shift", "Alt+Shift+3"], // French: Shift for digits
    ["Digit3", '"', "Alt", "Alt+3"], // French, without Shift
    ["Digit3", "‹", "Alt Shift", "Alt+Shift+3"], // a Mac's Option and Shift
    ["Digit3", "#", "Alt Control", "Ctrl+Alt+3"], // AltGr on Windows
    ["Digit3", "³", "Alt AltGraph", ""], // AltGr
    ["Numpad3", "3", "Alt", "Alt+3"],
    ["Numpad3", "PageDown", "Alt Shift", "Alt+Shift+PageDown"],
  ]) assert.equal(pressed(code, key, held), name, `${held} ${key}`);
});

test("keys have the names that the writer reads", () => {
  for (const [code, key, held, name] of [
    ["ArrowRight", "ArrowRight", "Control", "Ctrl+Right"],
    ["Escape", "Escape", "", "Esc"],
    ["Space", " ", "Control", "Ctrl+Space"],
    ["KeyJ", "j", "Control", "Ctrl+J"],
    ["KeyF", "ƒ", "Alt", "Alt+F"], // a Mac's Option
    ["Enter", "Enter", "Meta", "Meta+Enter"],
    ["ShiftLeft", "Shift", "Shift", ""],
    ["Quote", "Dead", "Alt", ""],
  ]) assert.equal(pressed(code, key, held), name, `${held} ${key}`);
});

test("a key is that of an action, with its digit, and mirrored where text runs from right to left", () => {
  for (const [key, action, mirrored, found] of [
    ["Tab", "Tab", false, 0],
    ["Alt+3", "Alt+1…9", false, 3],
    ["Alt+0", "Alt+1…9", false, null],
    ["Alt+Shift+3", "Alt+1…9", false, null],
    ["Ctrl+Alt+3", "Alt+1…9", false, null],
    ["Ctrl+Right", "Ctrl+Right", false, 0],
    ["Ctrl+Left", "Ctrl+Right", true, 0],
    ["Ctrl+Right", "Ctrl+Right", true, null],
  ]) assert.equal(matches(key, action, mirrored), found, `${key} for ${action}`);
});

test("no action takes a key from the text or the browser", () => {
  for (const key of ["X", "Shift+X", "Enter", "Left", "Shift+Tab"]) assert.match(problemOf(key), /The text itself/, key);
  for (const key of ["Ctrl+C", "Meta+Z", "Ctrl+W"]) assert.match(problemOf(key), /uses that key already/, key);
  for (const key of ["Tab", "F9", "Ctrl+Enter", "Alt+2", "Ctrl+Shift+C"]) assert.equal(problemOf(key), "", key);
});
