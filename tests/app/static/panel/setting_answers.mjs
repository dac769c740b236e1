/** Does to settings what test_setting.py asks for, in a file, and prints the answers as JSON. */

import { readFileSync } from "node:fs";

import { Setting } from "../../../../app/static/panel/setting.js";

const { catalogue, states, links, chains, kept } = JSON.parse(readFileSync(process.argv[2], "utf-8"));

/** @param {Record<string, any>} values by flag */
function settingOf(values) {
  const setting = new Setting(catalogue);
  setting.setAll(values);
  return setting;
}

const { presets } = catalogue;
const ofState = (values) => {
  const setting = settingOf(values);
  const [followed, recalled, taken] = [settingOf({}), settingOf({}), settingOf({})];
  followed.follow("temperature=3&k=7"); // which the link resets
  const [wrong, preset] = [followed.follow(setting.link()), setting.asPreset("mine")];
  recalled.recall(JSON.parse(JSON.stringify(setting.changed())));
  taken.take(preset, presets);
  return {
    values: { ...setting.values }, shown: [...setting.shown()], request: setting.request(), preset, wrong,
    idle: Object.fromEntries(Object.keys(setting.controls).map((flag) => [flag, setting.idle(flag)])),
    followed: { ...followed.values }, recalled: { ...recalled.values },
    taken: taken.request(), at: taken.isAt(preset, presets),
  };
};

/** Every preset after every other one. */
const afterOthers = presets.flatMap((before) => presets.map((preset) => {
  const setting = settingOf({});
  setting.take(before, presets);
  setting.take(preset, presets);
  const at = presets.filter((other) => setting.isAt(other, presets)).map(({ name }) => name);
  return { names: [before.name, preset.name], at, request: setting.request(), preset: setting.asPreset("mine") };
}));

const ofLink = (link) => {
  const setting = settingOf({ k: 5, rule: "min-p", "min-p": 0.25 });
  const before = JSON.stringify(setting);
  return { wrong: setting.follow(link), unchanged: JSON.stringify(setting) === before };
};

const ofVisit = (values) => {
  const setting = settingOf({});
  setting.recall(values);
  return setting.changed();
};

console.log(JSON.stringify({
  states: states.map(ofState), presets: afterOthers, links: links.map(ofLink), visits: kept.map(ofVisit),
  chains: chains.map((chain) => settingOf({}).refusal(chain)),
}));
