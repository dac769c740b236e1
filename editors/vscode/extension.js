// Drafts of Polydraft in VS Code: starts `polydraft lsp` and connects it to the editor.
const { LanguageClient } = require("vscode-languageclient/node");
const { workspace } = require("vscode");

let client;

exports.activate = () => {
  const command = workspace.getConfiguration("polydraft-command").get("path", "polydraft");
  const documentSelector = [{ scheme: "file" }, { scheme: "untitled" }];
  const synchronize = { configurationSection: "polydraft" };
  client = new LanguageClient("polydraft", "Polydraft", { command, args: ["lsp"] }, { documentSelector, synchronize });
  return client.start();
};

exports.deactivate = () => client?.stop();
