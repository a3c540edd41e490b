import createClient, { type Client } from "openapi-fetch";

import { NoAnswerError, ProblemError, type Problem } from "./problem.js";
import { afterUnknown, retrying, sleep, type Send, type Token } from "./retry.js";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];

/** An intent: a transaction, or a payload for a handler. */
export type CreateRequest = Schemas["CreateRequest"];
/** An intent of a batch, which has its own requestId. */
export type Intent = Schemas["Intent"];
export type Created = Schemas["Created"];
export type IntentResult = Schemas["BatchResult"];
export type Tx = Schemas["Tx"];
export type ListedTx = Schemas["ListedTx"];
export type Event = Schemas["Event"];
export type EventWithCursor = Schemas["EventPage"]["events"][number];
export type Cancelled = Schemas["CancelResponse"];
export type CancelOutcome = Cancelled["outcome"];

type Extra<T, Known> = { [K in Exclude<keyof T, keyof Known>]?: never };

/**
 * An intent without members that its schema does not have. TypeScript alone does not find them within the payload, since that
 * of an intent by handler can be anything.
 */
export type Exact<T, Any> = [Any] extends [T] ? unknown : Known<T>;

type Known<T> = T extends { handler: string }
  ? Extra<T, Schemas["CreateByHandler"]>
  : Extra<T, Schemas["CreateTransaction"]> & { payload: T extends { payload: infer P } ? Schemas["Payload"] & Extra<P, Schemas["Payload"]> : never };

/** The options of a client. Times are in milliseconds. */
export interface Options {
  /** The URL of the public paths, such as https://api.fencepost.example. */
  url: string;
  /** Returns the bearer token of each attempt. It keeps a token until that expires. */
  token: Token;
  /** One call with all its attempts; default 60,000. */
  within?: number;
  /** One attempt; default 30,000. */
  attemptTimeout?: number;
  /** The wait after the first attempt, at most, if the answer gives none; default 100. */
  retryFirst?: number;
  /** The same after many; default 5,000. */
  retryMax?: number;
  /** Sends one request; default: fetch. */
  send?: Send;
}

export interface WaitOptions {
  /** Ends the wait: the promise is rejected with its reason. */
  signal?: AbortSignal;
  /** The wait after the first poll, in milliseconds; default 250. */
  pollFirst?: number;
  /** The same after many; default 5,000. */
  pollMax?: number;
}

/** What {@link Fencepost.api} returns. */
interface Answered<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Calls one deployment for one caller, user or operator. */
export class Fencepost {
  /**
   * All calls of the OpenAPI document, with the token. A call without a definite answer is repeated where that has no
   * second effect. The answer has `data`, or `error` with the problem. It throws a {@link NoAnswerError} if there was none.
   */
  readonly api: Client<paths>;

  constructor(options: Options) {
    const send = options.send ?? ((request: Request) => fetch(request));
    this.api = createClient<paths>({
      baseUrl: options.url.replace(/\/$/, ""),
      redirect: "manual", // the token is for this deployment only
      fetch: retrying(send, options.token, {
        within: options.within ?? 60_000,
        attempt: options.attemptTimeout ?? 30_000,
        retryFirst: options.retryFirst ?? 100,
        retryMax: options.retryMax ?? 5_000,
      }),
    });
  }

  /** Stores an intent. The same intent again has the same txId. */
  async createTx<T extends CreateRequest>(body: T & Exact<T, CreateRequest>): Promise<Created> {
    return taken(await this.api.POST("/api/v1/tx", { body }));
  }

  /** Stores up to 500 intents and returns their results in order. An intent whose result has 429 or 503 must be sent again. */
  async createTxBatch<T extends readonly Intent[]>(intents: T & { [K in keyof T]: Exact<T[K], Intent> }): Promise<IntentResult[]> {
    const all: readonly Intent[] = intents;
    return taken(await this.api.POST("/api/v1/tx:batch", { body: { intents: [...all] } })).results;
  }

  async getTx(txId: string): Promise<Tx> {
    return taken(await this.api.GET("/api/v1/tx/{txId}", { params: { path: { txId } } }));
  }

  /** Returns the transaction of a request. The code NOT_FOUND means that nothing is stored under it. */
  async getTxByRequest(submitter: string, requestId: string): Promise<Tx> {
    return taken(await this.api.GET("/api/v1/tx/by-request", { params: { query: { submitter, requestId } } }));
  }

  /** Yields a submitter's transactions, the newest first, and reads pages as needed. */
  listTx(query: { submitter: string; state?: Tx["state"]; pageSize?: number }): AsyncGenerator<ListedTx> {
    return pages(
      (pageToken) => this.api.GET("/api/v1/tx", { params: { query: { ...query, pageToken } } }),
      (page) => page.transactions,
    );
  }

  /** Yields the kept events, the oldest first, up to the last one now. Continue later after a cursor as `pageToken`. */
  async *listEvents(query: { submitter?: string; pageToken?: string; pageSize?: number } = {}): AsyncGenerator<EventWithCursor> {
    for (let pageToken = query.pageToken; ; ) {
      const page = taken(await this.api.GET("/api/v1/events", { params: { query: { ...query, pageToken } } }));
      yield* page.events;
      if (page.events.length === 0) {
        return;
      }
      pageToken = page.nextPageToken;
    }
  }

  /** Cancels an intent, if that is still possible. Call it again while the outcome is PENDING. */
  async cancelTx(txId: string): Promise<Cancelled> {
    return taken(await this.api.POST("/api/v1/tx/{txId}/cancel", { params: { path: { txId } } }));
  }

  /** Reads the transaction until it is CONFIRMED or FAILED. */
  async waitFor(txId: string, options: WaitOptions = {}): Promise<Tx> {
    const most = options.pollMax ?? 5_000;
    for (let wait = options.pollFirst ?? 250; ; wait = Math.min(wait * 1.5, most)) {
      const tx = await this.readUnlessUnknown(txId, options.signal);
      if (tx?.state === "CONFIRMED" || tx?.state === "FAILED") {
        return tx;
      }
      await sleep(wait * (0.5 + Math.random()), options.signal);
    }
  }

  /** Reads the transaction; undefined: there was no definite answer. */
  private async readUnlessUnknown(txId: string, signal: AbortSignal | undefined): Promise<Tx | undefined> {
    try {
      return taken(await this.api.GET("/api/v1/tx/{txId}", { params: { path: { txId } }, signal }));
    } catch (e) {
      if (e instanceof NoAnswerError || (e instanceof ProblemError && e.outcomeUnknown)) {
        return undefined;
      }
      throw e;
    }
  }
}

/** Yields the rows of any list of {@link Fencepost.api}, and reads pages as needed. */
export async function* pages<P extends { nextPageToken?: string }, R>(
  read: (pageToken: string | undefined) => Promise<Answered<P>>,
  rows: (page: P) => readonly R[] | null,
): AsyncGenerator<R> {
  for (let pageToken: string | undefined; ; ) {
    const page = taken(await read(pageToken));
    yield* rows(page) ?? [];
    if (!page.nextPageToken) {
      return;
    }
    pageToken = page.nextPageToken;
  }
}

/** Returns the data of an answer, or throws its {@link ProblemError}. */
function taken<T>(answered: Answered<T>): NonNullable<T> {
  const { data, error, response } = answered;
  if (response.ok && data !== undefined && data !== null) {
    return data;
  }
  const problem = typeof error === "object" && error !== null ? (error as Partial<Problem> & Record<string, unknown>) : {};
  const code = problem.code ?? "";
  const unknown = response.status >= 500 || response.status === 408 || code === "";
  throw new ProblemError(response.status, code, problem, unknown || (afterUnknown.has(response) && !holdsForAll(response, problem)));
}

/** Whether a refusal holds for earlier attempts of the call too: a transfer has failed, or the key belongs to another request. */
function holdsForAll(response: Response, problem: Partial<Problem> & Record<string, unknown>): boolean {
  return (response.status === 422 && "req_id" in problem) || problem.code === "REQUEST_ID_CONFLICT" || problem.code === "CID_CONFLICT";
}
