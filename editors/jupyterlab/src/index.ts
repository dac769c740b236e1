/** The plugin: registers the provider of drafts, and adds a key that takes one word of the shown draft. */

import { type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { type CodeMirrorEditor } from "@jupyterlab/codemirror";
import { ICompletionProviderManager, IInlineCompleterFactory, type InlineCompleter } from "@jupyterlab/completer";

import { Drafts } from "./drafts";

const ACCEPT_WORD = "polydraft:accept-word";
const WORD = /^\s*\S+/; // with the space before a word, because drafts begin with one

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
      // The word is inserted like typed text, by which the completer shortens its items, so the rest stays visible.
      const view = (active.editor as CodeMirrorEditor).editor;
      view.dispatch(view.state.replaceSelection(word[0]));
    },
  });
  app.commands.addKeyBinding({
    command: ACCEPT_WORD,
    keys: ["Alt N"], // the editor itself uses Ctrl ArrowRight
    selector: ".jp-mod-inline-completer-active",
  });
}

/** Returns a set of the completers that the factory makes from now on; only they give access to the shown item. */
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
