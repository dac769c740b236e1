/** The provider of inline completions: its items are the drafts of one request, which grow while they are streamed. */

import { Notification } from "@jupyterlab/apputils";
import {
  type CompletionHandler,
  type IInlineCompletionContext,
  type IInlineCompletionItem,
  type IInlineCompletionList,
  type IInlineCompletionProvider,
  InlineCompletionTriggerKind,
} from "@jupyterlab/completer";
import { Text, URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";

import { Growing, type Chunk } from "./growing";

const PROSE = /^text\/(plain|markdown|x-markdown|x-ipythongfm|x-latex|x-tex|x-rst)\b/; // Markdown and raw cells, and files
const MOST_BEFORE = 16_384; // characters; the server does not use more
const MOST_AFTER = 4_096;
const SHOWN_MS = 10_000; // of an error; without a time JupyterLab would only count it
const SCHEMA = {
  properties: {
    k: { title: "Drafts", type: "number", minimum: 1, maximum: 9, default: 3 },
    length: { title: "Maximum number of tokens in a draft", type: "number", minimum: 1, maximum: 32, default: 10 },
    code: { title: "Drafts in code, too", type: "boolean", default: false },
    noSlurs: { title: "No slurs in drafts that appear by themselves", type: "boolean", default: true },
  },
  default: { k: 3, length: 10, code: false, noSlurs: true },
};

export class Drafts implements IInlineCompletionProvider {
  readonly identifier = "polydraft";
  readonly name = "Polydraft";
  readonly schema = SCHEMA as unknown as IInlineCompletionProvider["schema"];

  private settings = SCHEMA.default;
  private readonly session = `jupyterlab ${Math.random()}`;
  private latest = new Growing();
  private lastError = ""; // it is not repeated at every key

  constructor(private readonly server: ServerConnection.ISettings) {}

  configure(settings: Partial<typeof this.settings>): void {
    this.settings = { ...SCHEMA.default, ...settings };
  }

  async fetch(
    request: CompletionHandler.IRequest,
    context: IInlineCompletionContext,
  ): Promise<IInlineCompletionList> {
    this.latest.stop();
    const growing = (this.latest = new Growing());
    if (!this.settings.code && !PROSE.test(request.mimeType ?? "")) return { items: [] };
    const unasked = context.triggerKind === InlineCompletionTriggerKind.Automatic;
    const caret = Text.charIndexToJsIndex(request.offset, request.text);
    try {
      void growing.read(
        this.chunks(growing.signal, {
          prompt: request.text.slice(0, caret).slice(-MOST_BEFORE),
          suffix: request.text.slice(caret).slice(0, MOST_AFTER),
          n: this.settings.k,
          max_tokens: this.settings.length,
          no_slurs: unasked && this.settings.noSlurs,
          stream: true,
          user: `${this.session} ${context.widget.id}`,
        }),
      );
      await growing.begun;
    } catch (error) {
      if (!growing.signal.aborted) this.showError(String((error as Error).message));
      return { items: [] };
    }
    this.lastError = "";
    return { items: growing.items() };
  }

  /** Yields the item with this token while it grows. A newer request ends it. */
  async *stream(token: string): AsyncGenerator<{ response: IInlineCompletionItem }> {
    const growing = this.latest;
    try {
      yield* growing.stream(token);
    } catch (error) {
      if (!growing.signal.aborted) this.showError(String((error as Error).message));
    }
  }

  /** Yields the chunks of the response. Throws an error with the server's message. */
  private async *chunks(signal: AbortSignal, body: object): AsyncGenerator<Chunk> {
    const url = URLExt.join(this.server.baseUrl, "polydraft/completions");
    const init = { method: "POST", body: JSON.stringify(body), signal };
    const answer = await ServerConnection.makeRequest(url, init, this.server);
    if (!answer.ok || !answer.body) throw new Error((await answer.json()).error.message);
    let rest = "";
    for await (const text of answer.body.pipeThrough(new TextDecoderStream()) as unknown as AsyncIterable<string>) {
      const events = (rest + text).split("\n\n");
      rest = events.pop() ?? "";
      for (const event of events) {
        const data = event.replace(/^data: /, "");
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error?.code === "superseded") return;
        if (chunk.error) throw new Error(chunk.error.message);
        yield* chunk.choices;
      }
    }
  }

  private showError(message: string): void {
    if (message !== this.lastError) Notification.error(`Polydraft: ${message}`, { autoClose: SHOWN_MS });
    this.lastError = message;
  }
}
