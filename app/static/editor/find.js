// @ts-check
/**
 * Find and replace, ignoring case. A <textarea> shows its selection only while it has the focus, so a separate layer
 * shows the match while the search field has the focus.
 */

import { finder, onDo } from "../shared/dom.js";
import { insertAsTyped } from "./inserting.js";
import { inside, joined } from "./privacy.js";

const MOST = 10_000; // matches that are counted

export class Find {
  /**
   * @param {HTMLElement} root
   * @param {import("./text_field.js").TextField} text
   * @param {import("./keys.js").Keys} keys
   */
  constructor(root, text, keys) {
    const find = finder(root);
    this.text = text;
    this.bar = find(".pd-find");
    this.what = /** @type {HTMLInputElement} */ (find("[name=fd-what]"));
    this.with = /** @type {HTMLInputElement} */ (find("[name=fd-with]"));
    this.status = find(".fd-matches");
    this.layer = find(".fd-layer");
    /** Where each match begins. @type {number[]} */
    this.places = [];
    /** The index of the current match, or -1. */
    this.at = -1;

    const { textarea } = text;
    this.what.addEventListener("input", () => this.search(textarea.selectionStart));
    this.bar.addEventListener("submit", (event) => event.preventDefault());
    this.bar.addEventListener("keydown", (event) => this.pressed(event));
    onDo(root, {
      find: () => (this.bar.hidden ? this.open() : this.close()),
      "find-next": () => this.step(1),
      "find-previous": () => this.step(-1),
      replace: () => this.replace(),
      "replace-all": () => this.replaceAll(),
      "find-close": () => this.close(),
    });
    // The mark scrolls with the text. Changing the text or focusing it removes the mark.
    textarea.addEventListener("scroll", () => this.follow(), { passive: true });
    textarea.addEventListener("focus", () => document.hasFocus() && this.layer.replaceChildren());
    root.addEventListener("pd-text", () => this.layer.replaceChildren());
    keys.add({
      id: "find", usual: "Ctrl+F", mac: "Meta+F", does: "Find and replace", everywhere: true,
      run: () => {
        this.open();
        return true;
      },
    });
  }

  open() {
    const { value, selectionStart, selectionEnd } = this.text.textarea;
    const selected = value.slice(selectionStart, selectionEnd);
    this.bar.hidden = false;
    if (selected && !selected.includes("\n") && selected.length < 200) this.what.value = selected;
    this.what.focus();
    this.what.select();
    this.search(selectionStart);
  }

  close() {
    this.bar.hidden = true;
    this.layer.replaceChildren();
    this.text.textarea.focus();
  }

  /** @param {KeyboardEvent} event */
  pressed(event) {
    const { key, shiftKey, target, isComposing } = event;
    if (isComposing) return;
    if (key === "Escape") this.close();
    else if (key === "Enter" && target === this.what) this.step(shiftKey ? -1 : 1);
    else if (key === "Enter" && target === this.with) this.replace();
    else return;
    event.preventDefault();
  }

  // ---------------------------------------------------------------- matches

  /** Find all matches; the first at or after `from` is the current one. @param {number} from */
  search(from) {
    const { value } = this.what;
    this.places = value ? matches(this.text.textarea.value, value) : [];
    const next = this.places.findIndex((place) => place >= from);
    this.at = this.places.length ? Math.max(0, next) : -1;
    this.show();
  }

  /** @param {number} by */
  step(by) {
    const { length } = this.places;
    if (!length) return;
    this.at = (this.at + by + length) % length;
    this.show();
  }

  /** Select the current match, scroll to it and mark it. */
  show() {
    const { what, places, at, bar, text: { textarea } } = this;
    this.layer.replaceChildren();
    const many = places.length >= MOST ? `${MOST.toLocaleString("en")} or more` : places.length.toLocaleString("en");
    this.status.textContent = !what.value ? "" : at < 0 ? "Not found" : `${(at + 1).toLocaleString("en")} of ${many}`;
    if (at < 0) return;
    const start = places[at];
    const end = start + what.value.length;
    const focused = document.activeElement;
    textarea.setSelectionRange(start, end);
    // Taking the focus makes the browser scroll to the selection.
    textarea.blur();
    textarea.focus();
    if (focused instanceof HTMLElement && bar.contains(focused)) focused.focus({ preventScroll: true });
    this.mark(start, end);
  }

  /** @param {number} start @param {number} end */
  mark(start, end) {
    const { textarea, map } = this.text;
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
      this.layer.append(box);
    }
    this.follow();
  }

  follow() {
    this.layer.style.transform = `translateY(${-this.text.textarea.scrollTop}px)`;
  }

  // ---------------------------------------------------------------- replacing

  replace() {
    if (this.at < 0) return;
    const place = this.places[this.at];
    this.text.textarea.setSelectionRange(place, place + this.what.value.length);
    if (this.write(this.with.value)) this.search(place + this.with.value.length);
  }

  replaceAll() {
    if (!this.places.length) return;
    const { textarea, privacy } = this.text;
    const { value } = textarea;
    const [what, other] = [this.what.value, this.with.value];
    const all = matches(value, what, Infinity);
    let replaced = "";
    let from = 0;
    for (const place of all) {
      replaced += value.slice(from, place) + other;
      from = place + what.length;
    }
    replaced += value.slice(from);
    const lengths = { removed: what.length, inserted: other.length, all: value.length };
    const ranges = rangesAfter(privacy.ranges, all, lengths, privacy.isOn());
    textarea.select();
    const written = this.write(replaced);
    if (written) privacy.add(ranges); // the browser reports one edit, from the first match to the last
    textarea.setSelectionRange(0, 0);
    if (!written) return;
    this.search(0);
    this.status.textContent = `${all.length.toLocaleString("en")} replaced`;
  }

  /**
   * Replace the selection as one step of undo, and keep the focus in the bar.
   * @param {string} replacement
   * @returns {boolean} false if the text is too long to be edited, or would be
   */
  write(replacement) {
    const { textarea } = this.text;
    if (!this.text.hasRoomFor(replacement)) return false;
    const focused = /** @type {HTMLElement} */ (document.activeElement);
    if (replacement) insertAsTyped(textarea, replacement);
    else {
      textarea.focus({ preventScroll: true });
      document.execCommand("delete");
    }
    focused.focus({ preventScroll: true });
    return true;
  }
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
