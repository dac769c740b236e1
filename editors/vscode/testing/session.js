// Runs the extension with npm's vscode-languageclient; prints one line of JSON with what VS Code saw.
const vscode = require("vscode");
const extension = require("../extension.js");

const { testing } = vscode;
const [command, settings] = JSON.parse(process.argv[2]);

const until = async (test) => {
  for (const end = Date.now() + 20_000; !test(); ) {
    if (Date.now() > end) throw new Error(`waited in vain for ${test}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

(async () => {
  testing.settings = { "polydraft-command": { path: command }, polydraft: settings };
  await extension.activate();
  const [provider] = testing.providers;
  const never = new vscode.CancellationTokenSource().token;
  const context = { triggerKind: vscode.InlineCompletionTriggerKind.Invoke };
  const draft = async (document, character, token = never) => {
    const found = await provider.provideInlineCompletionItems(
      document,
      new vscode.Position(0, character),
      context,
      token,
    );
    return found && found.items;
  };

  const letter = await testing.open("file:///letter.md", "markdown", "🙂 Once");
  const items = await draft(letter, 7);

  await testing.configure({ polydraft: { ...settings, k: 2 } });
  const fewer = await draft(letter, 7);
  await testing.configure({ polydraft: { ...settings, k: 10 } });
  await until(() => testing.messages.length);

  const [first] = items;
  await testing.edit(letter, `🙂 Once${first.insertText}`);
  await testing.commands.get(first.command.command)(...first.command.arguments);
  await testing.edit(letter, `🙂 Once${first.insertText}.`);

  const source = new vscode.CancellationTokenSource();
  const cancelled = draft(letter, 7, source.token);
  await source.cancel();

  console.log(
    JSON.stringify({
      texts: items.map((item) => item.insertText),
      ranges: items.map(({ range: { start, end } }) => [start.line, start.character, end.line, end.character]),
      fewer: fewer.length,
      messages: testing.messages,
      cancelled: await cancelled.catch((error) => error.constructor.name),
    }),
  );
  await extension.deactivate();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
