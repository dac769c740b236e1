/** The drafts of one request while their texts arrive. */

import { type IInlineCompletionItem } from "@jupyterlab/completer";

/** A piece of one draft, as `/v1/completions` streams it. */
export interface Chunk {
  index: number;
  text: string;
  finish_reason: string | null;
}

interface Draft {
  text: string;
  done: boolean;
}

export class Growing {
  /** Resolved when the first chunks of all drafts have arrived, or at the end. */
  readonly begun: Promise<void>;

  private readonly drafts = new Map<number, Draft>();
  private readonly abort = new AbortController();
  private readonly beginning = Promise.withResolvers<void>();
  private changed = Promise.withResolvers<void>();
  private ended = false;

  constructor() {
    this.begun = this.beginning.promise;
    this.changed.promise.catch(() => {}); // an error without a waiting stream is not an unhandled rejection
  }

  get signal(): AbortSignal {
    return this.abort.signal;
  }

  /** Ends this request, because a newer one replaces it. */
  stop(): void {
    this.abort.abort();
  }

  async read(chunks: AsyncIterable<Chunk>): Promise<void> {
    try {
      for await (const { index, text, finish_reason } of chunks) {
        // The server sends the drafts' chunks in turn, so with the second chunk of one, all have begun.
        if (this.drafts.has(index)) this.beginning.resolve();
        const draft = this.drafts.get(index) ?? { text: "", done: false };
        this.drafts.set(index, { text: draft.text + text, done: finish_reason !== null });
        this.notify();
      }
      this.ended = true;
      this.beginning.resolve();
      this.notify();
    } catch (error) {
      this.ended = true;
      this.beginning.reject(error);
      this.changed.reject(error);
    }
  }

  items(): IInlineCompletionItem[] {
    return [...this.drafts]
      .filter(([, { text }]) => text)
      .map(([index, draft]) => ({
        insertText: draft.text,
        isIncomplete: !this.ended && !draft.done,
        token: String(index),
      }));
  }

  async *stream(token: string): AsyncGenerator<{ response: IInlineCompletionItem }> {
    let shown = -1;
    while (true) {
      if (this.abort.signal.aborted) return;
      const { changed } = this;
      const draft = this.drafts.get(Number(token));
      if (draft && draft.text.length > shown) {
        shown = draft.text.length;
        yield { response: { insertText: draft.text, isIncomplete: !draft.done } };
      }
      if (this.ended || draft?.done) return;
      await changed.promise;
    }
  }

  /** Wakes the waiting streams. */
  private notify(): void {
    this.changed.resolve();
    this.changed = Promise.withResolvers<void>();
    this.changed.promise.catch(() => {});
  }
}
