// As much of VS Code's extension interface as vscode-languageclient needs to run without VS Code. What is not here is an
// empty class or does nothing, so that the client can register features that the test does not use.

class Position {
  constructor(line, character) {
    Object.assign(this, { line, character });
  }
}

class Range {
  constructor(startLine, startCharacter, endLine, endCharacter) {
    this.start = new Position(startLine, startCharacter);
    this.end = new Position(endLine, endCharacter);
  }
}

class InlineCompletionItem {
  constructor(insertText, range, command) {
    Object.assign(this, { insertText, range, command });
  }
}

class InlineCompletionList {
  constructor(items) {
    this.items = items;
  }
}

class EventEmitter {
  #listeners = new Set();
  event = (listener, self) => {
    const bound = listener.bind(self);
    this.#listeners.add(bound);
    return { dispose: () => this.#listeners.delete(bound) };
  };
  fire = (value) => Promise.all([...this.#listeners].map((listener) => listener(value)));
  dispose() {}
}

class CancellationTokenSource {
  #cancelled = new EventEmitter();
  token = { isCancellationRequested: false, onCancellationRequested: this.#cancelled.event };
  cancel() {
    this.token.isCancellationRequested = true;
    return this.#cancelled.fire();
  }
  dispose() {}
}

class Disposable {
  constructor(dispose = () => {}) {
    this.dispose = dispose;
  }
}

class Uri {
  constructor(text) {
    this.text = text;
    this.scheme = text.split(":")[0];
    this.fsPath = this.path = text.replace(/^file:\/\//, "");
  }
  static parse = (text) => new Uri(text);
  static file = (path) => new Uri(`file://${path}`);
  toString = () => this.text;
}

// An event that never happens, and an object whose every method does nothing.
const never = () => new Disposable();
const quiet = (own) => new Proxy(own, { get: (object, name) => (name in object ? object[name] : never) });

exports.testing = { providers: [], commands: new Map(), messages: [], settings: {} };
const { testing } = exports;
const opened = new EventEmitter();
const changed = new EventEmitter();
const configured = new EventEmitter();
const documents = [];

/** A document, as the user opens it. */
testing.open = async (address, languageId, text) => {
  const document = {
    uri: Uri.parse(address),
    languageId,
    version: 1,
    text,
    isClosed: false,
    getText: () => document.text,
  };
  documents.push(document);
  await opened.fire(document);
  return document;
};

const position = (text, offset) => {
  const lines = text.slice(0, offset).split("\n");
  return [lines.length - 1, lines.at(-1).length];
};

/** The user edits: the document has this text now. As in VS Code, the event names the range that changed. */
testing.edit = async (document, text) => {
  const { text: before } = document;
  let start = 0;
  while (start < Math.min(before.length, text.length) && before[start] === text[start]) start += 1;
  const range = new Range(...position(before, start), ...position(before, before.length));
  const change = { range, rangeOffset: start, rangeLength: before.length - start, text: text.slice(start) };
  document.text = text;
  document.version += 1;
  await changed.fire({ document, contentChanges: [change] });
};

/** The user changes settings. */
testing.configure = async (settings) => {
  testing.settings = settings;
  await configured.fire({ affectsConfiguration: () => true });
};

const say = (message) => {
  testing.messages.push(message);
  return Promise.resolve();
};

const known = {
  Position,
  Range,
  InlineCompletionItem,
  InlineCompletionList,
  EventEmitter,
  CancellationTokenSource,
  CancellationError: class extends Error {},
  Disposable,
  Uri,
  version: "1.91.0",
  env: { appName: "A test", language: "en" },
  InlineCompletionTriggerKind: { Invoke: 0, Automatic: 1 },
  languages: quiet({
    match: () => 10,
    createDiagnosticCollection: () => quiet({}),
    registerInlineCompletionItemProvider: (_, provider) => {
      testing.providers.push(provider);
      return new Disposable();
    },
  }),
  commands: quiet({
    registerCommand: (name, run) => {
      testing.commands.set(name, run);
      return new Disposable();
    },
  }),
  window: quiet({
    createOutputChannel: () => quiet({}),
    showErrorMessage: say,
    showWarningMessage: say,
    showInformationMessage: say,
    visibleTextEditors: [],
    tabGroups: quiet({ all: [] }),
  }),
  workspace: quiet({
    textDocuments: documents,
    workspaceFolders: undefined,
    notebookDocuments: [],
    onDidOpenTextDocument: opened.event,
    onDidChangeTextDocument: changed.event,
    onDidChangeConfiguration: configured.event,
    getConfiguration: (section) => {
      const value = section ? testing.settings[section] : testing.settings;
      return value && { ...value, get: (name, otherwise) => value[name] ?? otherwise };
    },
  }),
};

module.exports = new Proxy(exports, {
  get: (own, name) => own[name] ?? (known[name] ??= class {}),
  has: () => true,
});
