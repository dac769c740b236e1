// @ts-check
/** The status line. While the server cannot be reached, shows a notice and tries to reconnect. */

import { emit, finder } from "../shared/dom.js";
import { offerModel } from "../shared/model.js";
import { Timers } from "../shared/timers.js";
import { ConnectionLost, ServerError, getJson } from "../shared/transport.js";

const LOADING = 500; // ms between status requests while the model loads

export class Connection {
  /**
   * @param {HTMLElement} root
   * @param {import("./notices.js").Notices} notices
   * @param {{lost: () => void, found: () => void}} callbacks
   */
  constructor(root, notices, callbacks) {
    this.root = root;
    this.find = finder(root);
    this.notices = notices;
    this.callbacks = callbacks;
    this.timers = new Timers();
    this.offline = false;
    addEventListener("online", () => this.offline && this.check());
    addEventListener("focus", () => this.offline && this.check());
  }

  async check() {
    try {
      /** @type {{model: string, backend: string, device: string, notice: string | null}} */
      const status = await getJson("/api/status");
      const { model, backend, device, notice } = status;
      emit(this.root, "pd-status", status);
      const where = device && device !== "cpu" ? `${backend} on ${device}` : backend;
      this.find(".pd-model").textContent = `${model} · ${where}`;
      this.find(".pd-remark").textContent = backend === "loading" ? "" : notice ?? "";
      this.found();
      offerModel(this.root, backend === "unavailable", () => this.check());
      if (backend === "loading") setTimeout(() => this.check(), LOADING);
    } catch (error) {
      if (error instanceof ConnectionLost) this.lost();
      else if (error instanceof ServerError) this.notices.notice("server", error);
      else throw error;
    }
  }

  /** @param {{model: string, backend: string, first_ms: number, per_token_ms: number, reused: number, fed: number}} s */
  showFigures({ model, backend, first_ms, per_token_ms, reused, fed }) {
    if (!this.find(".pd-model").textContent?.startsWith(model)) {
      this.find(".pd-model").textContent = `${model} · ${backend}`;
    }
    const figures = [
      ["first draft", `${first_ms.toFixed(0)} ms`],
      ["per token", `${per_token_ms.toFixed(1)} ms`],
      ["reused", `${reused} of ${reused + fed} tokens`],
    ];
    this.find(".pd-figures").innerHTML = figures
      .map(([name, value]) => `<span><span class="pd-name">${name}</span> <b>${value}</b></span>`)
      .join("");
  }

  lost() {
    this.callbacks.lost();
    if (this.offline) return;
    this.offline = true;
    this.notices.notice("connection", {
      message: "The connection to Polydraft is lost. Your text is safe here.",
      fix: "If you have closed it, start it again: this page will reconnect by itself.",
    });
    this.retry(1000);
  }

  /** @param {number} delay */
  retry(delay) {
    this.timers.later("retry", delay, async () => {
      await this.check();
      if (this.offline) this.retry(Math.min(delay * 1.5, 5000));
    });
  }

  /** The server has answered. */
  found() {
    if (!this.offline) return;
    this.offline = false;
    this.timers.stop("retry");
    this.notices.notice("connection", null);
    this.notices.notice("server", null); // problems from before the interruption are outdated
    this.notices.toast("Connected again.");
    this.callbacks.found();
  }
}
