// @ts-check
/**
 * What the extension shows in a page: the grey draft at the caret, and the list of all drafts. Both are in a closed shadow
 * root, so the page's scripts can neither read nor change them. A page can remove, cover or shrink them; `readable` is
 * whether a person could read what is shown.
 */

const STYLE = `
  :host { all: initial !important; position: fixed !important; inset: 0 auto auto 0 !important; width: 0 !important;
    height: 0 !important; overflow: visible !important; display: block !important; border: 0 !important;
    padding: 0 !important; margin: 0 !important; }
  .mirror { position: fixed; left: 0; top: 0; visibility: hidden; pointer-events: none; color: transparent; }
  .ghost { position: fixed; width: max-content; white-space: pre; pointer-events: none; user-select: none; }
  .ghost.below { padding: 1px 6px; border-radius: 5px; border: 1px solid #0003; background: #fff !important;
    color: #444 !important; box-shadow: 0 2px 8px #0003; white-space: pre-wrap; max-width: 320px; }
  .list { position: fixed; margin: 0; padding: 4px; list-style: none; min-width: 200px; max-width: min(560px, 90vw);
    font: 14px/1.4 system-ui, sans-serif; background: #fff; color: #1c1c1e; border: 1px solid #0002; border-radius: 9px;
    box-shadow: 0 6px 24px #0003; user-select: none; }
  .list li { display: flex; gap: 10px; padding: 6px 10px; border-radius: 6px; cursor: pointer; }
  .list li[aria-selected="true"] { background: #e4efe8; }
  .list kbd { font: inherit; color: #6b6b70; font-variant-numeric: tabular-nums; }
  [hidden] { display: none !important; }
  @media (prefers-color-scheme: dark) {
    .ghost.below, .list { background: #26272a !important; color: #ececee !important; border-color: #fff3; }
    .list li[aria-selected="true"] { background: #35473c; }
    .list kbd { color: #a5a5aa; }
  }
  @media print { .ghost, .list { display: none !important; } }
`;
const SMALLEST_LETTER = 9; // pixels
const LEAST_CONTRAST = 2; // of the grey draft
const LONG_ENOUGH = 300; // ms for which a draft is shown before it can be taken
const SIGHT = 100; // ms between two looks at what covers it: the least that browsers allow

class View {
  /** @param {(index: number) => void} take called for a draft that is clicked */
  constructor(take) {
    this.host = document.createElement("polydraft-drafts");
    this.host.popover = "manual"; // in the top layer, also above a page's modal dialogs
    const root = this.host.attachShadow({ mode: "closed" });
    const style = document.createElement("style");
    style.textContent = STYLE;
    this.mirror = element("div", "mirror");
    this.ghost = element("div", "ghost");
    this.list = element("ul", "list");
    this.mirror.ariaHidden = this.ghost.ariaHidden = "true";
    this.list.role = "listbox";
    this.list.ariaLabel = "Drafts";
    root.append(style, this.mirror, this.ghost, this.list);
    this.ghost.hidden = this.list.hidden = true;
    this.chosen = 0;
    /** What shows the drafts: the ghost or the list. @type {HTMLElement | null} */
    this.shown = null;
    /** @type {readonly string[]} */
    this.texts = [];
    this.clear = false; // nothing hides it
    this.since = Infinity; // when it became readable
    // Firefox does not know what covers an element; there, `readable` looks at the moment of the key alone.
    const how = /** @type {IntersectionObserverInit} */ ({ threshold: [0, 1], trackVisibility: true, delay: SIGHT });
    this.sight = new IntersectionObserver((entries) => entries.forEach((entry) => this.see(entry)), how);
    // mousedown, so that the field keeps the focus. A click that a script made is none.
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault();
      const at = event.target instanceof Element ? [...this.list.children].indexOf(/** @type {Element} */ (event.target.closest("li"))) : -1;
      if (event.isTrusted && at >= 0 && this.readable()) take(at);
    });
  }

  get listed() {
    return !this.list.hidden;
  }

  /**
   * @param {Field} field
   * @param {readonly string[]} drafts the best first; [] hides everything
   * @param {boolean} listed whether to show the list
   * @param {boolean} within whether text follows in the caret's line
   */
  show(field, drafts, listed, within) {
    if (!drafts.length) return this.hide();
    this.open();
    const place = placeOfCaret(field, this.mirror);
    if (!place) return this.hide();
    this.showGhost(field, drafts[0], place, within);
    this.chosen = Math.min(this.chosen, drafts.length - 1);
    if (listed) this.showList(drafts, place);
    else this.closeList();
    this.note(listed ? this.list : this.ghost, listed ? drafts : drafts.slice(0, 1));
  }

  /**
   * Note what is shown from now on. Rests of what was shown before count as read.
   * @param {HTMLElement} shown
   * @param {readonly string[]} texts
   */
  note(shown, texts) {
    if (shown !== this.shown) {
      this.sight.disconnect();
      this.sight.observe(shown);
      this.clear = false;
      this.since = Infinity;
    } else if (!texts.every((text) => this.texts.some((before) => before.endsWith(text)))) {
      this.since = this.clear ? performance.now() : Infinity;
    }
    this.shown = shown;
    this.texts = texts;
  }

  /** @param {IntersectionObserverEntry & {isVisible?: boolean}} entry */
  see({ target, isIntersecting, intersectionRatio, isVisible = true }) {
    if (target !== this.shown) return;
    this.clear = isIntersecting && intersectionRatio > 0.99 && isVisible;
    if (!this.clear) this.since = Infinity;
    else if (this.since === Infinity) this.since = performance.now();
  }

  /** Whether a person could read what is shown: for long enough, whole, uncovered, in letters that are not too small. */
  readable() {
    const { shown, host } = this;
    if (!shown || !host.isConnected || !host.matches(":popover-open")) return false;
    if (performance.now() - this.since < LONG_ENOUGH) return false;
    const { left, top, width, height } = shown.getBoundingClientRect();
    if (height < SMALLEST_LETTER) return false;
    shown.style.pointerEvents = "auto"; // for elementFromPoint
    const places = [left + 1, left + width / 2, left + width - 1];
    const onTop = places.every((x) => document.elementFromPoint(x, top + height / 2) === host);
    shown.style.pointerEvents = "";
    return onTop;
  }

  hide() {
    this.sight.disconnect();
    this.shown = null;
    this.since = Infinity;
    this.ghost.hidden = true;
    this.closeList();
    if (this.host.isConnected) this.host.remove();
  }

  closeList() {
    this.list.hidden = true;
    this.chosen = 0;
  }

  /** @param {number} by */
  move(by) {
    const rows = [...this.list.children];
    this.chosen = (this.chosen + by + rows.length) % rows.length;
    rows.forEach((row, i) => row.setAttribute("aria-selected", String(i === this.chosen)));
  }

  open() {
    if (this.host.isConnected && this.host.matches(":popover-open")) return;
    document.documentElement.append(this.host);
    this.host.showPopover();
  }

  /**
   * @param {Field} field
   * @param {string} draft
   * @param {Place} place
   * @param {boolean} within
   */
  showGhost(field, draft, place, within) {
    const style = getComputedStyle(caretElement(field));
    const box = field.getBoundingClientRect();
    const right = Math.min(box.right, innerWidth) - Number.parseFloat(style.paddingRight || "0");
    const { ghost } = this;
    const size = Math.max(Number.parseFloat(style.fontSize), SMALLEST_LETTER);
    const spacing = Number.parseFloat(style.letterSpacing); // NaN: normal
    ghost.textContent = draft;
    ghost.hidden = false;
    ghost.classList.remove("below");
    Object.assign(ghost.style, {
      fontFamily: genericOf(style.fontFamily),
      fontSize: `${size}px`,
      fontWeight: style.fontWeight,
      fontStyle: style.fontStyle,
      letterSpacing: Math.abs(spacing) < size / 8 ? style.letterSpacing : "normal",
      lineHeight: `${Math.max(place.height, size)}px`,
      left: `${place.left}px`,
      top: `${place.top}px`,
    });
    // Beside text, and where the line has too little room, it is shown below, so that all of it can be read.
    if (within || place.left + ghost.getBoundingClientRect().width > right) this.showBelow(place);
    else this.paint(style.color, backgroundOf(field), style.colorScheme);
    if (place.top + place.height < box.top || place.top > box.bottom) ghost.hidden = true; // scrolled out of the field
  }

  /** @param {Place} place */
  showBelow({ left, top, height }) {
    const { ghost } = this;
    ghost.classList.add("below");
    ghost.style.lineHeight = "normal";
    const size = ghost.getBoundingClientRect();
    const lower = top + height + 3;
    ghost.style.left = `${Math.max(Math.min(left, innerWidth - size.width - 4), 4)}px`;
    ghost.style.top = `${lower + size.height > innerHeight ? Math.max(top - size.height - 3, 4) : lower}px`;
  }

  /**
   * Paint the ghost half as dark as the field's letters, on the field's own colour. A field whose letters have the
   * colour of their background would hide it: then it is grey.
   * @param {string} ink
   * @param {string} paper
   * @param {string} scheme the field's `color-scheme`, which decides what the browser's own colours are
   */
  paint(ink, paper, scheme) {
    const { style } = this.ghost;
    style.colorScheme = scheme;
    const under = this.channels(paper);
    const [r, g, b, alpha = 1] = this.channels(ink);
    const half = [r, g, b].map((value, i) => under[i] + ((value - under[i]) * alpha) / 2);
    const [darker, lighter] = [lightness(half), lightness(under)].sort((one, other) => one - other);
    const grey = lightness(under) > 0.2 ? [0.4, 0.4, 0.4] : [0.7, 0.7, 0.7];
    const painted = (lighter + 0.05) / (darker + 0.05) < LEAST_CONTRAST ? grey : half;
    style.backgroundColor = `color(srgb ${under.slice(0, 3).join(" ")})`;
    style.color = `color(srgb ${painted.join(" ")})`;
  }

  /** Red, green and blue from 0 to 1, and the opacity if it is below 1. @param {string} color as CSS */
  channels(color) {
    this.ghost.style.color = `color-mix(in srgb, ${color}, ${color})`;
    return (getComputedStyle(this.ghost).color.match(/-?[\d.]+(e-?\d+)?/g) ?? []).map(Number);
  }

  /** @param {readonly string[]} drafts @param {Place} place */
  showList(drafts, place) {
    this.list.replaceChildren(...drafts.map((draft, i) => {
      const row = element("li", "");
      row.role = "option";
      row.ariaSelected = String(i === this.chosen);
      const number = element("kbd", "");
      number.textContent = String(i + 1);
      const text = element("span", "");
      text.textContent = draft.trim();
      row.append(number, text);
      return row;
    }));
    this.list.hidden = false;
    const { width, height } = this.list.getBoundingClientRect();
    if (this.ghost.classList.contains("below")) this.ghost.hidden = true; // its text is the first row
    const lower = place.top + place.height + 6;
    this.list.style.left = `${Math.max(Math.min(place.left, innerWidth - width - 8), 4)}px`;
    this.list.style.top = `${lower + height > innerHeight ? Math.max(place.top - height - 6, 4) : lower}px`;
  }
}

/** @param {string} name @param {string} kind */
function element(name, kind) {
  const made = document.createElement(name);
  made.className = kind;
  return made;
}

/** The element whose style the letters at the caret have. @param {Field} field */
function caretElement(field) {
  if (isPlain(field)) return field;
  const at = caretOf(field)?.startContainer;
  return at instanceof Element ? at : at?.parentElement ?? field;
}

/** The colour behind a field's letters, of the innermost element around them that paints one. @param {Field} field */
function backgroundOf(field) {
  for (let at = /** @type {Element | null} */ (caretElement(field)); at; at = at.parentElement ?? hostOf(at)) {
    const { backgroundColor } = getComputedStyle(at);
    if (!/^(transparent|rgba\(.*, 0(\.[0-4]\d*)?\))$/.test(backgroundColor)) return backgroundColor;
  }
  return "Canvas";
}

/** @param {Element} element */
function hostOf(element) {
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? root.host : null;
}

/** @param {readonly number[]} channels */
function lightness([r, g, b]) {
  return 0.2126 * r ** 2.2 + 0.7152 * g ** 2.2 + 0.0722 * b ** 2.2;
}

/**
 * A generic family that looks like the page's. Not the page's own: it may define a font that loads a file for each letter
 * that is shown, and would learn the letters of a draft.
 * @param {string} family
 */
function genericOf(family) {
  if (/mono|courier|consol|menlo/i.test(family)) return "monospace";
  if (/sans|arial|helvetica|system-ui|segoe|roboto|inter\b/i.test(family)) return "sans-serif";
  return /serif|times|georgia|garamond|palatino/i.test(family) ? "serif" : "sans-serif";
}
