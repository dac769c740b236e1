// @ts-check
/** Timers by name. Starting one again replaces it. */

export class Timers {
  constructor() {
    /** @type {Record<string, number | undefined>} */
    this.running = {};
  }

  /**
   * @param {string} name
   * @param {number} ms
   * @param {() => void} action
   */
  later(name, ms, action) {
    clearTimeout(this.running[name]);
    this.running[name] = setTimeout(() => {
      this.running[name] = undefined;
      action();
    }, ms);
  }

  /** @param {string[]} names */
  stop(...names) {
    for (const name of names) {
      clearTimeout(this.running[name]);
      this.running[name] = undefined;
    }
  }
}
