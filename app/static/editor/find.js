// @ts-check
/**
 * Find and replace, ignoring case. A <textarea> shows its selection only while it has the focus, so a separate layer
 * shows the match while the search field has the focus.
 */

import { finder } from "../shared/dom.js";
import { insertAsTyped } from "./inserting.js";
import { inside, joined } from "./privacy.js";

const MOST = 10_000; // matches that are counted

/**
 * @param {HTMLElement} root
 * @param {import("./text_field.js").TextField} text
 * @param {(key: import("./keys.js").Key) => void} addKey
 */
export function setUpFind(root, text, addKey) {
  const { textarea, privacy, map } = text;
  const find = finder(root);
  const bar = find(".pd-find");
  const field = /** @type {HTMLInputElement} */ (find("[name=fd-what]"));
  const other = /** @type {HTMLInputElement} */ (find("[name=fd-with]"));
  const status = find(".fd-matches");
  const layer = find(".fd-layer");
  /** Where each match begins. @type {number[]} */
  let places = [];
  let at = -1;

  function open() {
    const { value, selectionStart, selectionEnd } = textarea;
    const selected = value.slice(selectionStart, selectionEnd);
    bar.hidden = false;
    if (selected && !selected.includes("\n") && selected.length < 200) field.value = selected;
    field.focus();
    field.select();
    search(selectionStart);
  }

  function close() {
    bar.hidden = true;
    layer.replaceChildren();
    textarea.focus();
  }

  /** Find all matches; the first at or after `from` is the current one. @param {number} from */
  function search(from) {
    const what = field.value;
    places = what ? matches(textarea.value, what) : [];
    const next = places.findIndex((place) => place >= from);
    at = places.length ? Math.max(0, next) : -1;
    show();
  }

  /** @param {number} by */
  function step(by) {
    if (!places.length) return;
    at = (at + by + places.length) % places.length;
    show();
  }

  /** Select the current match, scroll to it and mark it. */
  function show() {
    layer.replaceChildren();
    const many = places.length >= MOST ? `${MOST.toLocaleString("en")} or more` : places.length.toLocaleString("en");
    status.textContent = !field.value ? "" : at < 0 ? "Not found" : `${(at + 1).toLocaleString("en")} of ${many}`;
    if (at < 0) return;
    const start = places[at];
    const end = start + field.value.length;
    const focused = document.activeElement;
    textarea.setSelectionRange(start, end);
    // Taking the focus makes the browser scroll to the selection.
    textarea.blur();
    textarea.focus();
    if (focused instanceof HTMLElement && bar.contains(focused)) focused.focus({ preventScroll: true });
    mark(start, end);
  }

  /** @param {number} start @param {number} end */
  function mark(start, end) {
    const from = map.locate(textarea.value, start);
    const to = map.locate(textarea.value, end);
    if (!from || !to) return; // a long text, too slow to measure: the selection itself shows the match
    const { left, top, lineHeight, width } = map.column();
    const y = top + from.y - textarea.scrollTop;
    if (y < 0 || y + 2 * lineHeight > textarea.clientHeight) textarea.scrollTop += y - textarea.clientHeight / 3;
    const lines = Math.round((to.y - from.y) / lineHeight) + 1;
    for (let line = 0; line < lines; line++) {
      const box = document.createElement("div");
      const x = line === 0 ? from.x : 0;
      const right = line === lines - 1 ? to.x : width;
      box.style.cssText = `left:${left + Math.min(x, right)}px; top:${top + from.y + line * lineHeight}px; ` +
        `width:${Math.abs(right - x)}px; height:${lineHeight}px`;
      layer.append(box);
    }
    layer.style.transform = `translateY(${-textarea.scrollTop}px)`;
  }

  function replace() {
    if (at < 0) return;
    const place = places[at];
    textarea.setSelectionRange(place, place + field.value.length);
    if (!write(other.value)) return;
    search(place + other.value.length);
  }

  function replaceAll() {
    if (!places.length) return;
    const { value } = textarea;
    const all = matches(value, field.value, Infinity);
    let replaced = "";
    let from = 0;
    for (const place of all) {
      replaced += value.slice(from, place) + other.value;
      from = place + field.value.length;
    }
    replaced += value.slice(from);
    const lengths = { removed: field.value.length, inserted: other.value.length, all: value.length };
    const ranges = rangesAfter(privacy.ranges, all, lengths, privacy.isOn());
    textarea.select();
    const written = write(replaced);
    if (written) privacy.add(ranges); // the browser reports one edit, from the first match to the last
    textarea.setSelectionRange(0, 0);
    if (!written) return;
    search(0);
    status.textContent = `${all.length.toLocaleString("en")} replaced`;
  }

  /**
   * Replace the selection as one step of undo, and keep the focus in the bar.
   * @param {string} replacement
   * @returns {boolean} false if the text is too long to be edited, or would be
   */
  function write(replacement) {
    if (!text.hasRoomFor(replacement)) return false;
    const focused = /** @type {HTMLElement} */ (document.activeElement);
    if (replacement) insertAsTyped(textarea, replacement);
    else {
      textarea.focus({ preventScroll: true });
      document.execCommand("delete");
    }
    focused.focus({ preventScroll: true });
    return true;
  }

  field.addEventListener("input", () => search(textarea.selectionStart));
  bar.addEventListener("submit", (event) => event.preventDefault());
  bar.addEventListener("keydown", (event) => {
    const { key, shiftKey, target, isComposing } = event;
    if (isComposing) return;
    if (key === "Escape") close();
    else if (key === "Enter" && target === field) step(shiftKey ? -1 : 1);
    else if (key === "Enter" && target === other) replace();
    else return;
    event.preventDefault();
  });
  /** @type {Record<string, () => void>} */
  const actions = {
    find: () => (bar.hidden ? open() : close()),
    "find-next": () => step(1),
    "find-previous": () => step(-1),
    replace,
    "replace-all": replaceAll,
    "find-close": close,
  };
  for (const [name, action] of Object.entries(actions)) find(`[data-do=${name}]`).addEventListener("click", action);
  // The mark scrolls with the text. Changing the text or focusing it removes the mark.
  textarea.addEventListener("scroll", () => (layer.style.transform = `translateY(${-textarea.scrollTop}px)`), { passive: true });
  textarea.addEventListener("focus", () => document.hasFocus() && layer.replaceChildren());
  root.addEventListener("pd-text", () => layer.replaceChildren());
  addKey({
    id: "find", usual: "Ctrl+F", mac: "Meta+F", does: "Find and replace", everywhere: true,
    run() {
      open();
      return true;
    },
  });
}

/**
 * Private ranges after every match was replaced. A match with a private character is replaced by private ones.
 * @param {import("./privacy.js").Range[]} ranges
 * @param {number[]} places of the matches
 * @param {{removed: number, inserted: number, all: number}} lengths of a match, of what replaces it, and of the whole text
 *   before
 * @param {boolean} isPrivate whether what replaces a match is private in any case
 */
export function rangesAfter(ranges, places, { removed, inserted, all }, isPrivate) {
  if (!ranges.length && !isPrivate) return ranges;
  /** @type {import("./privacy.js").Range[]} */
  const after = [];
  const add = (/** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ by) => {
    for (const [start, end] of inside(ranges, from, to)) after.push([from + by + start, from + by + end]);
  };
  let from = 0;
  places.forEach((place, n) => {
    const by = n * (inserted - removed);
    add(from, place, by);
    if (isPrivate || inside(ranges, place, place + removed).length) after.push([place + by, place + by + inserted]);
    from = place + removed;
  });
  add(from, all, places.length * (inserted - removed));
  return joined(after);
}

/**
 * The positions of `what` in `text`, without overlaps, ignoring case. If converting to lower case changes the length
 * (a few letters do), positions would shift, so the search then respects case.
 * @param {string} text
 * @param {string} what
 * @param {number} most
 */
export function matches(text, what, most = MOST) {
  let [hay, needle] = [text.toLowerCase(), what.toLowerCase()];
  if (hay.length !== text.length || needle.length !== what.length) [hay, needle] = [text, what];
  const places = [];
  for (let place = hay.indexOf(needle); place >= 0 && places.length < most; place = hay.indexOf(needle, place + needle.length)) {
    places.push(place);
  }
  return places;
}
