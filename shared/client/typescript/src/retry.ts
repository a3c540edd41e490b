import { NoAnswerError } from "./problem.js";

/** How long the attempts of a call take, in milliseconds. */
export interface Patience {
  within: number;
  attempt: number;
  retryFirst: number;
  retryMax: number;
}

/** Sends one request. */
export type Send = (request: Request) => Promise<Response>;

/** Returns the bearer token of an attempt. */
export type Token = () => string | Promise<string>;

/** Answers before which an attempt of the same call had an unknown outcome. */
export const afterUnknown = new WeakSet<Response>();

/** Repeats a request without a definite answer where that has no second effect, with growing waits that respect Retry-After. */
export function retrying(send: Send, token: Token, patience: Patience): Send {
  return async (request) => {
    const end = Date.now() + patience.within;
    const repeatable = await canRepeat(request);
    let unknown = false;
    for (let most = patience.retryFirst; ; most = Math.min(2 * most, patience.retryMax)) {
      const answer = await attempt(send, request, await token(), Math.min(patience.attempt, end - Date.now()));
      // A random part is added, so that clients that were refused together do not return together.
      const wait = retryAfter(answer) + Math.random() * most;
      if (!later(answer) || !(repeatable || certain(answer)) || Date.now() + wait >= end) {
        return definite(answer, unknown);
      }
      unknown ||= !certain(answer);
      await sleep(wait, request.signal);
    }
  };
}

/** An answer, or the reason why there is none. */
type Answer = Response | NoAnswerError;

async function attempt(send: Send, request: Request, token: string, within: number): Promise<Answer> {
  const limit = AbortSignal.timeout(Math.max(within, 1));
  const one = new Request(request.clone(), { signal: AbortSignal.any([request.signal, limit]) });
  one.headers.set("Authorization", `Bearer ${token}`);
  try {
    const answer = await send(one);
    // The body is read here: a connection that breaks meanwhile leaves no answer.
    return answer.body === null ? answer : new Response(await answer.arrayBuffer(), answer);
  } catch (cause) {
    request.signal.throwIfAborted(); // the caller has given up
    return new NoAnswerError(`${request.method} ${new URL(request.url).pathname}: no answer`, { cause });
  }
}

function definite(answer: Answer, unknown: boolean): Response {
  if (answer instanceof NoAnswerError) {
    throw answer;
  }
  if (unknown) {
    afterUnknown.add(answer);
  }
  return answer;
}

/** Whether a repeat may get another answer later. */
function later(answer: Answer): boolean {
  return answer instanceof NoAnswerError || answer.status >= 500 || answer.status === 408 || answer.status === 429 || answer.headers.has("Retry-After");
}

/** Whether the attempt has certainly had no effect, or all of it. */
function certain(answer: Answer): boolean {
  return !(answer instanceof NoAnswerError) && answer.status < 500 && answer.status !== 408;
}

/** The answer's Retry-After in milliseconds, in either of its forms; 0: none. */
function retryAfter(answer: Answer): number {
  const text = answer instanceof NoAnswerError ? null : answer.headers.get("Retry-After");
  if (text === null) {
    return 0;
  }
  return /^\d+$/.test(text) ? Number(text) * 1000 : Math.max(Date.parse(text) - Date.now(), 0) || 0;
}

/** POSTs with the same effect if they are sent twice: each has its own key, or none is needed. */
const keyed = [/\/api\/v1\/tx$/, /\/api\/v1\/tx:batch$/, /\/api\/v1\/tx\/[^/]+\/cancel$/, /\/api\/v1\/payout_address$/, /\/admin\/v1\/accounts\/[^/]+\/[^/]+\/(deposits|withdrawals)$/];

/** POSTs that have one effect only if they have a key. */
const keyedByCid = /\/api\/v1\/(internal_transfer|payout)$/;

/** Operators' calls. The repeat of a change whose answer was lost could undo a later change by another operator. */
const operators = /\/admin\/v1\//;

async function canRepeat(request: Request): Promise<boolean> {
  const path = new URL(request.url).pathname;
  if (request.method === "GET" || request.method === "HEAD" || keyed.some((pattern) => pattern.test(path))) {
    return true;
  }
  if (request.method !== "POST") {
    return !operators.test(path);
  }
  if (!keyedByCid.test(path)) {
    return false;
  }
  const body: unknown = await request.clone().json();
  return request.headers.has("Idempotency-Key") || typeof (body as { cid?: unknown }).cid === "string";
}

/** Waits, and throws the signal's reason once it is aborted. */
export function sleep(milliseconds: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
