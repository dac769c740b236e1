// @ts-check
/**
 * The dialog with the code that pairs the extension of a browser with this server. Each time it opens, it requests a new
 * code; a code is no longer shown once it is not valid, or the dialog is closed.
 */

import { finder, onDo, setText } from "../shared/dom.js";
import { failureOf, postJson } from "../shared/transport.js";
import { messageOf } from "../shared/wording.js";

/** Returns a function that opens the dialog. @param {HTMLElement} root */
export function setUpPairing(root) {
  const find = finder(root);
  const dialog = /** @type {HTMLDialogElement} */ (find(".pd-pairing"));
  const code = find(".pr-code");
  const left = find(".pr-left");
  let ends = 0; // of the code, as performance.now()
  let ticking = 0;
  let newest = 0; // the number of the newest request

  /** @param {string} sentence */
  function withoutCode(sentence) {
    clearInterval(ticking);
    setText(code, "");
    code.hidden = Boolean(sentence);
    setText(left, sentence);
  }

  function tick() {
    const seconds = Math.ceil((ends - performance.now()) / 1000);
    if (seconds <= 0) return withoutCode("The code is no longer valid.");
    setText(left, `Valid once, for ${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} more.`);
  }

  async function show() {
    const request = (newest += 1);
    withoutCode("");
    const failed = await failureOf(async () => {
      const answer = /** @type {{code: string, seconds: number}} */ (await postJson("/pair/code", {}));
      if (!dialog.open || request !== newest) return;
      code.hidden = false;
      setText(code, answer.code);
      ends = performance.now() + answer.seconds * 1000;
      ticking = setInterval(tick, 1000);
      tick();
    });
    if (failed) withoutCode(messageOf(failed));
  }

  onDo(root, { "new-code": show });
  dialog.addEventListener("close", () => {
    newest += 1;
    withoutCode("");
  });
  return () => {
    dialog.showModal();
    show();
  };
}
