/** The plugin: registers the provider of drafts, and adds a key that takes one word of the shown draft. */

import { type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { type CodeMirrorEditor } from "@jupyterlab/codemirror";
import { ICompletionProviderManager, IInlineCompleterFactory, type InlineCompleter } from "@jupyterlab/completer";

import { Drafts } from "./drafts";

const ACCEPT_WORD = "polydraft:accept-word";
const WORD = /^\s*\S+/; // also takes the space before a word, as drafts begin with one

const plugin: JupyterFrontEndPlugin<void> = {
  id: "polydraft-jupyterlab:plugin",
  description: "Drafts of Polydraft as inline completions.",
  autoStart: true,
  requires: [ICompletionProviderManager, IInlineCompleterFactory],
  activate: (app: JupyterFrontEnd, manager: ICompletionProviderManager, factory: IInlineCompleterFactory) => {
    manager.registerInlineProvider(new Drafts(app.serviceManager.serverSettings));
    addAcceptWord(app, factory);
  },
};

export default plugin;

function addAcceptWord(app: JupyterFrontEnd, factory: IInlineCompleterFactory): void {
  const completers = completersOf(factory);
  app.commands.addCommand(ACCEPT_WORD, {
    label: "Accept a Word of the Inline Completion",
    execute: () => {
      const active = [...completers].find((completer) => completer.isActive);
      const word = WORD.exec(active?.current?.insertText ?? "");
      if (!active || !word) return;
      // As if it was typed: the completer shortens its items by what is typed, and goes on to show the rest.
      const view = (active.editor as CodeMirrorEditor).editor;
      view.dispatch(view.state.replaceSelection(word[0]));
    },
  });
  app.commands.addKeyBinding({
    command: ACCEPT_WORD,
    keys: ["Alt N"], // Ctrl ArrowRight belongs to the editor, which lets no other use of it pass
    selector: ".jp-mod-inline-completer-active",
  });
}

/** The completers that the factory makes from now on: JupyterLab has no other way to the shown item. */
function completersOf(factory: IInlineCompleterFactory): Set<InlineCompleter> {
  const made = new Set<InlineCompleter>();
  const make = factory.factory.bind(factory);
  factory.factory = (options) => {
    const completer = make(options);
    made.add(completer);
    completer.disposed.connect(() => made.delete(completer));
    return completer;
  };
  return made;
}
