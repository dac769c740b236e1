/** The cases of tests/cases: what the page's scripts and Python both decide. Python's tests read them, too. */

import { readFileSync } from "node:fs";

/** The cases of `tests/cases/NAME.json`. */
export function cases(name) {
  return JSON.parse(readFileSync(new URL(`../../cases/${name}.json`, import.meta.url), "utf8")).cases;
}
