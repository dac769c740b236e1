// @ts-check
/** The part *Your speed* of the tab of personal stores: the numbers that the page has measured, and their reset. */

import { finder, newElement } from "../shared/dom.js";
import { plural } from "../shared/wording.js";

const WORD = 5; // characters, as typing speed is counted

/**
 * @param {HTMLElement} root of the tab
 * @param {import("../editor/pace.js").Pace} pace
 */
export function drawNumbers(root, pace) {
  const find = finder(root);
  const list = find(".ps-numbers");
  const button = find(".ps-reset-numbers");

  function draw() {
    const { costs, keys, known, decisionKnown, minutes, pause, thought } = pace;
    const { shown, taken, judged, right } = pace.numbers;
    const [all, written] = [judged, right].map((counts) => Math.round(counts.reduce((a, b) => a + b, 0)));
    const guess = known ? "" : " (a published mean, until 200 keys are measured)";
    const words = Math.round(60_000 / (costs.key_ms * WORD));
    const rows = [
      ["Between two keys", `${costs.key_ms} ms, ${words} words a minute${guess}`],
      ["Keys measured", String(Math.round(keys))],
      ["From seeing a draft to taking it", `${costs.take_ms} ms${decisionKnown ? "" : " (a published mean, until 20 are measured)"}`],
      ["Drafts taken", `${taken} of ${plural(shown, "row")} that you could read`],
      ["Shown rows that you then wrote", `${written} of ${all}; chances are corrected by this`],
      ["A pause", `${(pause / 1000).toFixed(1)} s without a key`],
      ["Pauses for thought", thought.count ? `${thought.count}, usually ${(thought.ms / 1000).toFixed(1)} s; no part of your speed` : "none yet"],
      ["Time saved this week", `${minutes.toFixed(1)} min (estimated)`],
    ];
    list.replaceChildren(...rows.map(([name, value]) => newElement("div", "", "<dt></dt><dd></dd>", { dt: name, dd: value })));
  }

  button.addEventListener("click", () => {
    pace.reset();
    draw();
  });
  draw();
  return draw;
}
