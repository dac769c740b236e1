// A stand-in for the parts of Obsidian's API that the plugin uses. `askOutside` and `notices` belong to the test.
export class Plugin {
  constructor(app, data) {
    Object.assign(this, { app, data, extensions: [], tabs: [] });
  }
  async loadData() {
    return this.data;
  }
  async saveData(data) {
    this.data = structuredClone(data);
  }
  registerEditorExtension(extension) {
    this.extensions.push(extension);
  }
  addSettingTab(tab) {
    this.tabs.push(tab);
  }
}

export class PluginSettingTab {
  constructor(app) {
    this.app = app;
    this.containerEl = Object.assign(document.createElement("div"), { empty() { this.replaceChildren(); } });
  }
}

export class Notice {
  constructor(text) {
    (window.notices ??= []).push(text);
  }
}

// Obsidian's process sends these requests, so no page's origin and no preflight belong to them.
export async function requestUrl(request) {
  const { status, text } = await window.askOutside(request);
  if (!status) throw new Error("net::ERR_CONNECTION_REFUSED");
  return { status, text, json: JSON.parse(text) };
}

class Control {
  constructor(parent) {
    this.input = parent.appendChild(document.createElement("input"));
  }
  setValue(value) {
    this.input.value = value;
    return this;
  }
  setLimits() {
    return this;
  }
  onChange(changed) {
    this.input.addEventListener("input", () => changed(this.input.value));
    return this;
  }
}

class Toggle {
  constructor(parent) {
    this.input = Object.assign(parent.appendChild(document.createElement("input")), { type: "checkbox" });
  }
  setValue(value) {
    this.input.checked = value;
    return this;
  }
  onChange(changed) {
    this.input.addEventListener("change", () => changed(this.input.checked));
    return this;
  }
}

export class Setting {
  constructor(parent) {
    this.element = parent.appendChild(document.createElement("label"));
  }
  setName(name) {
    this.element.append(name);
    return this;
  }
  setDesc() {
    return this;
  }
  addText(add) {
    add(new Control(this.element));
    return this;
  }
  addSlider(add) {
    add(new Control(this.element));
    return this;
  }
  addToggle(add) {
    add(new Toggle(this.element));
    return this;
  }
}
