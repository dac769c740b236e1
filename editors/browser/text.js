// @ts-check
/** The text around the caret of a field, where the caret is, and the insertion of a draft there. */

const BEFORE = 6000; // characters that Polydraft reads, at most
const STRIDE = 3000; // the text that it reads begins at a multiple of this: it knows a text by its beginning
const AFTER = 400;

/** @typedef {{before: string, after: string}} Around the text before and after the caret */

/**
 * The text around the caret; null if there is a selection, or no caret in the field.
 * @param {Field} field
 * @returns {Around | null}
 */
function textAround(field) {
  if (isPlain(field)) {
    const { selectionStart: start, selectionEnd: end, value } = field;
    if (start === null || start !== end) return null;
    return { before: value.slice(beginning(start), start), after: value.slice(start, start + AFTER) };
  }
  const at = caretOf(field);
  if (!at) return null;
  const all = document.createRange();
  all.selectNodeContents(field);
  all.setEnd(at.startContainer, at.startOffset);
  const end = all.toString().length;
  return { before: plain(walked(field, at, false, end - beginning(end))), after: plain(walked(field, at, true, AFTER)) };
}

/**
 * All of the text in a field; compared with what it was, it shows whether the page has changed it.
 * @param {Field} field
 */
function wholeText(field) {
  return isPlain(field) ? field.value : field.textContent ?? "";
}

/**
 * The whole words of a draft that fit into a field, which may take no more than so many characters.
 * @param {Field} field
 * @param {string} draft
 */
function fitting(field, draft) {
  const room = isPlain(field) && field.maxLength >= 0 ? field.maxLength - field.value.length : Infinity;
  return draft.length <= room ? draft : /^[^]*\S(?=\s)/.exec(draft.slice(0, Math.max(room, 0) + 1))?.[0] ?? "";
}

/** Where the text begins that Polydraft reads for a caret at an offset. @param {number} offset */
function beginning(offset) {
  return Math.max(Math.ceil((offset - BEFORE) / STRIDE) * STRIDE, 0);
}

/** The caret as a collapsed range in an edited element. @param {Field} field */
function caretOf(field) {
  const selection = getSelection();
  if (!selection?.rangeCount || !selection.isCollapsed) return null;
  const range = selection.getRangeAt(0);
  return field.contains(range.startContainer) ? range : null;
}

/**
 * Editors write a space at the end of a line as one that does not break, and empty places as characters of no width.
 * @param {string} text
 */
function plain(text) {
  return text.replaceAll("\u00a0", " ").replace(/[\u200b\ufeff]/g, "");
}

/**
 * The text from the caret to the beginning or to the end of an edited element, as far as it is needed. Blocks and line
 * breaks end a line.
 * @param {Field} field
 * @param {Range} caret
 * @param {boolean} forward
 * @param {number} most the characters to read, without ends of lines
 */
function walked(field, caret, forward, most) {
  const { startContainer: start, startOffset: offset } = caret;
  let left = most;
  const walker = document.createTreeWalker(field, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  /** @type {Map<Element, Element>} */
  const blocks = new Map();
  let [text, block] = ["", blockOf(start, field, blocks)];

  /** @param {Node} node @param {string} part */
  const add = (node, part) => {
    const own = blockOf(node, field, blocks);
    const line = own === block ? "" : "\n";
    block = own;
    if (part !== "\n") {
      part = forward ? part.slice(0, left) : part.slice(Math.max(part.length - left, 0));
      left -= part.length;
    }
    text = forward ? text + line + part : part + line + text;
  };
  /** @param {Node} node */
  const visit = (node) => {
    if (node instanceof Text) {
      if (!isIsland(node.parentElement, field)) add(node, node.data);
    } else if (node instanceof HTMLBRElement) {
      const alone = !node.nextSibling; // it only keeps an empty line open, or ends the last one
      add(node, alone ? "" : "\n");
    }
  };

  if (start instanceof Text) {
    add(start, forward ? start.data.slice(offset) : start.data.slice(0, offset));
    walker.currentNode = start;
  } else {
    const child = start.childNodes[forward ? offset : offset - 1];
    walker.currentNode = child ?? start;
    if (child && forward) visit(child);
    else if (child) {
      let last = child;
      while (last.lastChild) last = last.lastChild;
      walker.currentNode = last;
      visit(last);
    } else if (forward) {
      // Nothing follows in this element, so the walk begins behind its last descendant.
      let last = start;
      while (last.lastChild) last = last.lastChild;
      walker.currentNode = last;
    }
  }
  for (let node; left > 0 && (node = forward ? walker.nextNode() : walker.previousNode()); ) visit(node);
  return text;
}

/**
 * The innermost block around a node.
 * @param {Node} node
 * @param {Field} field
 * @param {Map<Element, Element>} known
 */
function blockOf(node, field, known) {
  const parent = node instanceof Element && !(node instanceof HTMLBRElement) ? node : node.parentElement;
  let found = parent ?? field;
  while (found !== field && getComputedStyle(found).display.startsWith("inline") && found.parentElement) {
    const before = known.get(found);
    if (before) return before;
    found = found.parentElement;
  }
  if (parent) known.set(parent, found);
  return found;
}

/**
 * Whether an element is within a part of the field that is not edited, such as a placeholder.
 * @param {Element | null} element
 * @param {Field} field
 */
function isIsland(element, field) {
  const island = element?.closest('[contenteditable="false"]');
  return !!island && island !== field && field.contains(island);
}

/**
 * Inserts text at the caret as if it were typed: the field's undo, React and editors notice it. There is no other way
 * to do that in a field whose script is not ours, although the command is called deprecated.
 * @param {string} text
 */
function insert(text) {
  document.execCommand("insertText", false, text);
}

/** @typedef {{left: number, top: number, height: number}} Place of the caret, in pixels of the window */

/** Styles that decide where the letters of a plain field are. */
const LETTERS = /** @type {const} */ ([
  "boxSizing", "width", "height", "borderTopWidth", "borderRightWidth", "borderBottomWidth", "borderLeftWidth",
  "paddingTop", "paddingRight", "paddingBottom", "paddingLeft", "fontStyle", "fontVariant", "fontWeight", "fontStretch",
  "fontSize", "fontSizeAdjust", "lineHeight", "fontFamily", "textAlign", "textTransform", "textIndent", "letterSpacing",
  "wordSpacing", "tabSize", "direction", "wordBreak", "overflowWrap",
]);

/**
 * Where the caret is.
 * @param {Field} field
 * @param {HTMLElement} mirror an empty element, in which a plain field's text is laid out again
 * @returns {Place | null}
 */
function placeOfCaret(field, mirror) {
  if (isPlain(field)) return placeInPlain(field, mirror);
  const range = caretOf(field);
  if (!range) return null;
  const [rect] = range.getClientRects();
  if (rect) return { left: rect.left, top: rect.top, height: rect.height };
  const { startContainer: at, startOffset: offset } = range;
  const node = at.childNodes[offset] ?? at;
  const element = node instanceof Element ? node : node.parentElement;
  if (!element) return null;
  const style = getComputedStyle(element instanceof HTMLBRElement ? element.parentElement ?? element : element);
  const { left, top, height } = element.getBoundingClientRect();
  const line = Number.parseFloat(style.lineHeight) || 1.3 * Number.parseFloat(style.fontSize);
  const [padLeft, padTop] = element === node && !(element instanceof HTMLBRElement) ? [style.paddingLeft, style.paddingTop] : ["0", "0"];
  return {
    left: left + Number.parseFloat(padLeft),
    top: top + Number.parseFloat(padTop),
    height: Math.min(height || line, line),
  };
}

/**
 * @param {PlainField} field
 * @param {HTMLElement} mirror
 * @returns {Place}
 */
function placeInPlain(field, mirror) {
  const style = getComputedStyle(field);
  for (const name of LETTERS) mirror.style[name] = style[name];
  const area = field instanceof HTMLTextAreaElement;
  mirror.style.borderStyle = "solid";
  mirror.style.whiteSpace = area ? "pre-wrap" : "pre";
  if (area) mirror.style.width = `${field.clientWidth + Number.parseFloat(style.borderLeftWidth) + Number.parseFloat(style.borderRightWidth)}px`;
  mirror.style.boxSizing = area ? "border-box" : style.boxSizing;
  mirror.style.height = "auto";
  const end = field.selectionStart ?? 0;
  const mark = document.createElement("span");
  mark.textContent = "\u200b";
  // A word that the caret is in may stand in the next line as a whole.
  const rest = document.createElement("span");
  rest.textContent = /^\S*/.exec(field.value.slice(end, end + 100))?.[0] ?? "";
  mirror.replaceChildren(field.value.slice(0, end), mark, rest);
  const [outer, inner, at] = [field.getBoundingClientRect(), mirror.getBoundingClientRect(), mark.getBoundingClientRect()];
  mirror.replaceChildren();
  const middle = area ? 0 : (outer.height - inner.height) / 2; // a line in a higher field stands in its middle
  return {
    left: outer.left + at.left - inner.left - field.scrollLeft,
    top: outer.top + at.top - inner.top - field.scrollTop + middle,
    height: at.height,
  };
}
