// @ts-check
/**
 * Charts of the next token's distribution, from the answers of /api/view and /api/sweep: bars of the tokens that a rule
 * keeps, all rules side by side, kept tokens by temperature, and Top-W's candidates on a plane. HTML and SVG, no state.
 */

import { newButton, newElement, part, setText } from "../shared/dom.js";
import { plural } from "../shared/wording.js";

/**
 * @typedef {{id: number, text: string, probability: number}} Token
 * @typedef {{rule: string, title: string, count: number, mass: number, entropy: number, kept: boolean[], last: number}} Choice
 * @typedef {{text: string, probability: number, x: number, y: number, kept: boolean, plain: boolean}} Point
 * @typedef {{n: number, temperature: number, entropy: number, possible: number, tokens: Token[], choices: Choice[],
 *            top_w: {gained: number, lost: number, rounds: number} | null, map: Point[] | null}} View
 * @typedef {{temperatures: number[], counts: Record<string, number[]>}} Sweep
 */

/** A token's text with visible signs for spaces and line ends. @param {string} text */
export function visible(text) {
  return text.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
}

/** @param {number} p */
export function share(p) {
  if (p >= 0.9995) return "100%";
  const percent = p * 100;
  if (percent >= 10) return `${percent.toFixed(0)}%`;
  if (percent >= 0.995) return `${percent.toFixed(1)}%`;
  return percent >= 0.01 ? `${percent.toFixed(2)}%` : "<0.01%";
}

/** @param {number} n */
export const counted = (n) => n.toLocaleString("en");

// ---------------------------------------------------------------- bars

const BARS = 12;

/**
 * Draw the most probable tokens, filled where `chosen` keeps them. The names of the other rules are beside the last token
 * that each keeps.
 * @param {HTMLElement} box
 * @param {View} view
 * @param {Choice} chosen
 * @param {Set<number>} before the tokens that the rule kept before the present movement, which marks what has changed
 * @param {(token: string) => void} start starts a draft with a token
 */
export function drawBars(box, view, chosen, before, start) {
  const likeliest = view.tokens.slice(0, BARS);
  let table = /** @type {HTMLTableElement | null} */ (box.querySelector("table"));
  if (!table) {
    box.innerHTML =
      `<table class="sm-bars"><caption class="pd-unseen">The likeliest next tokens, whole words or pieces of words</caption>` +
      `<thead class="pd-unseen"><tr><th>Token</th><th>Probability</th><th>Kept</th><th>Rules that stop here</th></tr></thead>` +
      `<tbody></tbody></table><p class="sm-beyond"></p>`;
    table = part(box, "table");
    table.addEventListener("click", ({ target }) => {
      const button = target instanceof Element && target.closest("button");
      if (button) start(button.dataset.token ?? "");
    });
  }
  const body = table.tBodies[0];
  while (body.rows.length > likeliest.length) body.deleteRow(-1);
  while (body.rows.length < likeliest.length) body.append(newBar());
  const most = likeliest[0]?.probability || 1;
  const stops = likeliest.map(() => /** @type {string[]} */ ([]));
  const beyond = [];
  for (const choice of view.choices) {
    if (choice.rule === chosen.rule) continue;
    const shown = choice.kept.slice(0, BARS).filter(Boolean).length;
    if (choice.count > shown) beyond.push(`${choice.title} ${counted(choice.count)}`);
    else if (choice.last >= 0 && choice.last < BARS) stops[choice.last].push(choice.title);
  }
  likeliest.forEach((token, i) => {
    const row = body.rows[i];
    const kept = chosen.kept[i];
    row.classList.toggle("sm-kept", kept);
    row.classList.toggle("sm-stop", stops[i].length > 0);
    row.classList.toggle("sm-added", kept && !before.has(token.id));
    row.classList.toggle("sm-left", !kept && before.has(token.id));
    row.style.setProperty("--share", String(token.probability / most));
    const [name, value, state, rules] = row.cells;
    drawToken(/** @type {HTMLButtonElement} */ (name.firstElementChild), token.text);
    setText(value.lastElementChild, share(token.probability));
    setText(state, kept ? "kept" : "dropped");
    setText(rules, stops[i].join(" · "));
    rules.title = stops[i].length ? `The last token that ${stops[i].join(", ")} would keep` : "";
  });
  setText(box.querySelector(".sm-beyond"), beyond.length ? `Beyond these ${likeliest.length}: ${beyond.join(" · ")}` : "");
}

function newBar() {
  return newElement("tr", "", `
    <th scope="row" dir="auto"><button type="button"></button></th><td class="sm-bar"><i></i><span></span></td>
    <td class="pd-unseen"></td><td class="sm-rules"></td>`);
}

/** @param {HTMLButtonElement} button @param {string} text */
function drawToken(button, text) {
  if (button.dataset.token === text) return;
  button.dataset.token = text;
  button.replaceChildren(
    ...visible(text).split(/([␣↵⇥∅]+)/).filter(Boolean).map((part) => {
      const span = newElement("span", /[␣↵⇥∅]/.test(part) ? "sm-mark" : "");
      span.textContent = part;
      return span;
    }),
  );
  button.title = `Start a draft with ${visible(text)}`;
}

// ---------------------------------------------------------------- all rules

/**
 * Draw one small chart per rule; a click chooses the rule.
 * @param {HTMLElement} box
 * @param {View} view
 * @param {string} chosen
 * @param {(rule: string) => void} choose
 */
export function drawMultiples(box, view, chosen, choose) {
  let grid = /** @type {HTMLElement | null} */ (box.querySelector(".sm-grid"));
  if (!grid || grid.children.length !== view.choices.length) {
    box.innerHTML = `<div class="sm-grid" role="group" aria-label="All rules"></div>`;
    grid = /** @type {HTMLElement} */ (box.firstElementChild);
    for (const _ of view.choices) {
      const button = newButton("", () => choose(button.dataset.rule ?? ""));
      button.innerHTML = `<span class="sm-name"><b></b><span></span></span><svg aria-hidden="true" preserveAspectRatio="none"><path class="sm-off"/><path class="sm-on"/></svg>`;
      grid.append(button);
    }
  }
  const n = Math.max(view.tokens.length, 1);
  const most = Math.sqrt(view.tokens[0]?.probability || 1);
  view.choices.forEach((choice, k) => {
    const button = /** @type {HTMLElement} */ (grid.children[k]);
    button.dataset.rule = choice.rule;
    button.setAttribute("aria-pressed", String(choice.rule === chosen));
    const [title, figure] = /** @type {any} */ (button.firstElementChild).children;
    setText(title, choice.title);
    setText(figure, `${counted(choice.count)} · ${share(choice.mass)}`);
    button.title = `${choice.title} keeps ${plural(choice.count, "token")} with ${share(choice.mass)} of the probability`;
    const svg = /** @type {SVGElement} */ (button.lastElementChild);
    svg.setAttribute("viewBox", `0 0 ${n * 5} 36`);
    const parts = ["", ""];
    view.tokens.forEach((token, i) => {
      // Square roots make the tail visible at this size.
      const height = Math.max((36 * Math.sqrt(token.probability)) / most, 1.2);
      parts[Number(choice.kept[i])] += `M${i * 5 + 0.6} 36v${-height.toFixed(2)}h3.800v${height.toFixed(2)}z`;
    });
    svg.children[0].setAttribute("d", parts[0]);
    svg.children[1].setAttribute("d", parts[1]);
  });
}

// ---------------------------------------------------------------- temperature

const WIDE = 380, HIGH = 300, LEFT = 44, TOP = 12, BOTTOM = 34;

/**
 * Draw the number of kept tokens by temperature, one line per rule.
 * @param {HTMLElement} box
 * @param {Sweep} sweep
 * @param {{rule: string, temperature: number, titles: Record<string, string>, possible: number}} now
 * @param {{wide: number, high: number}} size in px
 */
export function drawSweep(box, sweep, { rule, temperature, titles, possible }, { wide, high: tall } = { wide: WIDE, high: HIGH }) {
  const right = wide > WIDE ? 150 : 78; // the room for the names

  const { temperatures, counts } = sweep;
  const [low, high] = [temperatures[0], temperatures[temperatures.length - 1]];
  const most = Math.max(possible, 10);
  const x = (/** @type {number} */ t) => LEFT + (Math.log(t / low) / Math.log(high / low)) * (wide - LEFT - right);
  const y = (/** @type {number} */ n) => TOP + (1 - Math.log(Math.max(n, 1)) / Math.log(most)) * (tall - TOP - BOTTOM);
  let drawn = "";
  for (let n = 1; n <= most; n *= 10) {
    drawn += `<path class="sm-rule" d="M${LEFT} ${y(n)}H${wide - right}"/><text class="sm-tick" x="${LEFT - 8}" y="${y(n) + 4}" text-anchor="end">${shortened(n)}</text>`;
  }
  for (const t of [0.5, 1, 2, 3, 5, 10]) {
    drawn += `<text class="sm-tick" x="${x(t)}" y="${tall - BOTTOM + 17}" text-anchor="middle">${t}</text>`;
  }
  const present = Math.min(Math.max(temperature, low), high);
  drawn += `<path class="sm-now" d="M${x(present)} ${TOP}V${tall - BOTTOM}"/>`;
  drawn += `<text class="sm-axis" x="${(LEFT + wide - right) / 2}" y="${tall - 2}" text-anchor="middle">Temperature</text>`;
  const endOf = (/** @type {string} */ name) => {
    const at = y(counts[name][temperatures.length - 1]);
    return { name, end: at, at };
  };
  const names = Object.keys(counts).sort((a, b) => Number(a === rule) - Number(b === rule)); // the chosen one on top
  for (const name of names) {
    const line = counts[name].map((n, i) => `${i ? "L" : "M"}${x(temperatures[i]).toFixed(1)} ${y(n).toFixed(1)}`).join("");
    const words = counts[name].map((n, i) => `${temperatures[i]}: ${counted(n)}`).join(", ");
    drawn += `<g class="sm-line${name === rule ? " sm-chosen" : ""}"><path class="sm-reach" d="${line}"/><path d="${line}"/><title>${titles[name]}. ${words}</title></g>`;
  }
  for (const { name, end, at } of spread(names.map((name) => endOf(name)), tall)) {
    drawn += `<path class="sm-lead" d="M${wide - right + 1} ${end.toFixed(1)}L${wide - right + 9} ${at.toFixed(1)}"/>`;
    drawn += `<text class="sm-label${name === rule ? " sm-chosen" : ""}" x="${wide - right + 12}" y="${(at + 4).toFixed(1)}">${titles[name]}</text>`;
  }
  const spoken = names.map((name) => `${titles[name]} ${counts[name][0]} to ${counts[name][temperatures.length - 1]}`).join("; ");
  box.innerHTML =
    `<p class="sm-note">How many tokens each rule keeps here, by temperature.</p>` +
    `<svg class="sm-sweep" viewBox="0 0 ${wide} ${tall}" role="img" aria-label="Kept tokens from temperature ${low} to ${high}: ${spoken}">${drawn}</svg>`;
}

/** @param {number} n */
const shortened = (n) => (n >= 1000 ? `${n / 1000}k` : String(n));

/**
 * Move labels apart so that none overlap, and keep their order from top to bottom.
 * @param {{name: string, end: number, at: number}[]} labels
 * @param {number} tall the height of the drawing
 */
function spread(labels, tall) {
  const apart = 15;
  const sorted = [...labels].sort((a, b) => a.at - b.at);
  for (let i = 1; i < sorted.length; i++) sorted[i].at = Math.max(sorted[i].at, sorted[i - 1].at + apart);
  // Move labels that were pushed out at the bottom up again.
  let floor = tall - BOTTOM + 8;
  for (let i = sorted.length - 1; i >= 0 && sorted[i].at > floor; i--, floor -= apart) sorted[i].at = floor;
  return sorted;
}

// ---------------------------------------------------------------- the plane

/**
 * Draw Top-W's most probable candidates on the two principal axes of their embeddings.
 * @param {HTMLElement} box
 * @param {Point[]} points
 */
export function drawMap(box, points) {
  const pad = 22;
  const size = { wide: WIDE, high: 320 };
  const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  // One scale for both axes, so that distances in the drawing can be compared.
  const scale = Math.min((size.wide - 2 * pad - 46) / (x1 - x0 || 1), (size.high - 2 * pad) / (y1 - y0 || 1));
  const left = (size.wide - 46 - scale * (x1 - x0)) / 2, top = (size.high - scale * (y1 - y0)) / 2;
  const placed = points.map((p) => ({
    ...p,
    cx: left + (p.x - x0) * scale,
    cy: top + (y1 - p.y) * scale,
    r: 2.4 + 9 * Math.sqrt(p.probability),
  }));
  let drawn = "";
  for (const p of [...placed].reverse()) { // the most probable on top
    const kind = p.kept ? (p.plain ? "sm-in" : "sm-in sm-moved") : p.plain ? "sm-out sm-moved" : "sm-out";
    drawn += `<circle class="${kind}" cx="${p.cx.toFixed(1)}" cy="${p.cy.toFixed(1)}" r="${p.r.toFixed(1)}"><title>${escaped(visible(p.text))} ${share(p.probability)}, ${p.kept ? "kept" : "dropped"}</title></circle>`;
  }
  /** @type {{x0: number, x1: number, y0: number, y1: number}[]} */
  const taken = placed.filter((p) => p.kept).map((p) => ({ x0: p.cx - p.r, x1: p.cx + p.r, y0: p.cy - p.r, y1: p.cy + p.r }));
  for (const p of [...placed].sort((a, b) => Number(b.kept) - Number(a.kept) || b.probability - a.probability)) {
    const text = visible(p.text).replace(/^␣/, "");
    const label = { x0: p.cx + p.r + 2, x1: p.cx + p.r + 4 + text.length * 6.6, y0: p.cy - 7, y1: p.cy + 7 };
    if (label.x1 > size.wide || taken.some((o) => label.x0 < o.x1 && o.x0 < label.x1 && label.y0 < o.y1 && o.y0 < label.y1)) continue;
    taken.push(label);
    drawn += `<text class="${p.kept ? "sm-chosen" : ""}" x="${label.x0.toFixed(1)}" y="${(p.cy + 4).toFixed(1)}">${escaped(text)}</text>`;
  }
  const kept = points.filter((p) => p.kept).length;
  box.innerHTML =
    `<p class="sm-note">The ${points.length} likeliest tokens; similar ones lie close together. ` +
    `<span class="sm-key sm-in"></span>Kept <span class="sm-key sm-out"></span>Dropped ` +
    `<span class="sm-key sm-moved"></span>Changed by distance</p>` +
    `<svg class="sm-map" viewBox="0 0 ${size.wide} ${size.high}" role="img" aria-label="A map of ${points.length} tokens, ${kept} of them kept">${drawn}</svg>`;
}

/** @param {string} text */
const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
