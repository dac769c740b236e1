// @ts-check
/**
 * What the extension shows in a page: the grey draft at the caret, and the list of all drafts. Both are in a closed shadow
 * root, so the page's scripts can neither read nor change them.
 */

const STYLE = `
  :host { all: initial !important; position: fixed !important; inset: 0 auto auto 0 !important; width: 0 !important;
    height: 0 !important; overflow: visible !important; display: block !important; border: 0 !important;
    padding: 0 !important; margin: 0 !important; }
  .mirror { position: fixed; left: 0; top: 0; visibility: hidden; pointer-events: none; color: transparent; }
  .ghost { position: fixed; white-space: pre; overflow: hidden; text-overflow: ellipsis; pointer-events: none;
    user-select: none; }
  .ghost.below { padding: 1px 6px; border-radius: 5px; border: 1px solid #0003; background: #fff; color: #444 !important;
    opacity: 1 !important; box-shadow: 0 2px 8px #0003; }
  .list { position: fixed; margin: 0; padding: 4px; list-style: none; min-width: 200px; max-width: min(560px, 90vw);
    font: 14px/1.4 system-ui, sans-serif; background: #fff; color: #1c1c1e; border: 1px solid #0002; border-radius: 9px;
    box-shadow: 0 6px 24px #0003; user-select: none; }
  .list li { display: flex; gap: 10px; padding: 6px 10px; border-radius: 6px; cursor: pointer; }
  .list li[aria-selected="true"] { background: #e4efe8; }
  .list kbd { font: inherit; color: #6b6b70; font-variant-numeric: tabular-nums; }
  [hidden] { display: none !important; }
  @media (prefers-color-scheme: dark) {
    .ghost.below, .list { background: #26272a; color: #ececee !important; border-color: #fff3; }
    .list li[aria-selected="true"] { background: #35473c; }
    .list kbd { color: #a5a5aa; }
  }
  @media print { .ghost, .list { display: none !important; } }
`;
const ROOM = 90; // pixels; with less of them to the right the draft is shown below the line
const PALE = "0.5";

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
    // mousedown, so that the field keeps the focus. A click that a script made is none.
    this.list.addEventListener("mousedown", (event) => {
      event.preventDefault();
      const at = event.target instanceof Element ? [...this.list.children].indexOf(/** @type {Element} */ (event.target.closest("li"))) : -1;
      if (event.isTrusted && at >= 0) take(at);
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
  }

  hide() {
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
    const below = within || right - place.left < ROOM;
    const { ghost } = this;
    ghost.textContent = draft;
    ghost.classList.toggle("below", below);
    Object.assign(ghost.style, {
      fontFamily: genericOf(style.fontFamily),
      fontSize: style.fontSize,
      fontWeight: style.fontWeight,
      fontStyle: style.fontStyle,
      letterSpacing: style.letterSpacing,
      color: style.color,
      opacity: PALE,
      lineHeight: below ? "normal" : `${place.height}px`,
      left: `${below ? Math.max(Math.min(place.left, innerWidth - 320), 4) : place.left}px`,
      top: `${below ? place.top + place.height + 3 : place.top}px`,
      maxWidth: `${below ? 320 : right - place.left}px`,
    });
    const hidden = place.top + place.height < box.top || place.top > box.bottom; // scrolled out of the field
    ghost.hidden = hidden;
  }

  /**
   * @param {readonly string[]} drafts
   * @param {Place} place
   */
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

/**
 * @param {string} name
 * @param {string} kind
 */
function element(name, kind) {
  const made = document.createElement(name);
  made.className = kind;
  return made;
}

/**
 * The element whose style the letters at the caret have.
 * @param {Field} field
 */
function caretElement(field) {
  if (isPlain(field)) return field;
  const at = caretOf(field)?.startContainer;
  return at instanceof Element ? at : at?.parentElement ?? field;
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
