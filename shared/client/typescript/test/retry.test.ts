// What is repeated, and what is not: against a server that answers as it is told.
import assert from "node:assert/strict";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, beforeEach, test } from "node:test";

import { Fencepost, NoAnswerError, ProblemError } from "@fencepost/client";

/** An answer, or "cut": the connection is cut after the request. */
type Reply = { status: number; body?: unknown; retryAfter?: string } | "cut";

let replies: Reply[] = [];
let asked: { method: string; path: string; token: string | undefined; body: string }[] = [];
let server: Server;
let url = "";

before(async () => {
  server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    asked.push({ method: request.method ?? "", path: request.url ?? "", token: request.headers.authorization, body });
    const reply = replies.length > 1 ? replies.shift() : replies[0];
    if (reply === undefined || reply === "cut") {
      request.socket.destroy();
      return;
    }
    response.statusCode = reply.status;
    response.setHeader("Content-Type", reply.status < 400 ? "application/json" : "application/problem+json");
    if (reply.retryAfter !== undefined) response.setHeader("Retry-After", reply.retryAfter);
    response.end(JSON.stringify(reply.body ?? {}));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

after(() => {
  server.closeAllConnections();
  server.close();
});

beforeEach(() => {
  replies = [];
  asked = [];
});

const problem = (status: number, code: string, more = {}) => ({ type: `/errors/${code}`, title: "t", status, code, ...more });
const submitter = "eip155:1337:0x02e40fe26b255d5c8dfb71cbfeb1bf9ff7ab917d";
const intent = { submitter, requestId: "order-4711", payload: { to: "0x00000000000000000000000000000000000cafe0", value: "1" } };

function client(more = {}): Fencepost {
  let tokens = 0;
  return new Fencepost({ url: `${url}/`, token: () => `token-${++tokens}`, within: 3_000, retryFirst: 1, retryMax: 5, ...more });
}

test("an intent is repeated until there is an answer, with the same body and a token each time", async () => {
  replies = ["cut", { status: 503, body: problem(503, "UNAVAILABLE"), retryAfter: "0" }, { status: 429, body: problem(429, "QUEUE_FULL"), retryAfter: "1" }, { status: 200, body: { txId: "t" } }];
  const began = Date.now();
  assert.deepEqual(await client().createTx(intent), { txId: "t" });
  assert.ok(Date.now() - began >= 1_000, "Retry-After is respected");
  assert.deepEqual(asked.map((a) => a.token), ["Bearer token-1", "Bearer token-2", "Bearer token-3", "Bearer token-4"]);
  assert.deepEqual([...new Set(asked.map((a) => a.body))], [JSON.stringify(intent)]);
});

test("a refusal is not repeated, and is typed", async () => {
  replies = [{ status: 409, body: problem(409, "REQUEST_ID_CONFLICT", { detail: "another payload", instance: "urn:uuid:1" }) }];
  await assert.rejects(client().createTx(intent), (e) => {
    assert.ok(e instanceof ProblemError);
    assert.deepEqual([e.status, e.code, e.problem.instance, e.outcomeUnknown], [409, "REQUEST_ID_CONFLICT", "urn:uuid:1", false]);
    assert.match(e.message, /409 REQUEST_ID_CONFLICT another payload/);
    return true;
  });
  assert.equal(asked.length, 1);
});

test("a refusal after an attempt without an answer leaves the outcome unknown, unless it holds for both", async () => {
  for (const [code, unknown] of [["POLICY_REFUSED", true], ["REQUEST_ID_CONFLICT", false]] as const) {
    replies = ["cut", { status: 409, body: problem(409, code) }];
    await assert.rejects(client().createTx(intent), (e) => e instanceof ProblemError && e.code === code && e.outcomeUnknown === unknown);
  }
});

test("a transfer is repeated only with a cid", async () => {
  const body = { from: "FUNDING", to: "SPOT", asset: "USDT", amount: "12.5" } as const;
  const ended = { transfer_id: 1, req_id: "r", from: "FUNDING", to: "SPOT", state: "COMMITTED", message: "" };
  const busy = { status: 503, body: problem(503, "SYSTEM_ERROR"), retryAfter: "0" };
  replies = [busy, { status: 200, body: ended }];
  const once = await client().api.POST("/api/v1/internal_transfer", { body });
  assert.equal(once.response.status, 503);
  assert.equal(asked.length, 1);
  replies = [busy, { status: 200, body: ended }];
  const repeated = await client().api.POST("/api/v1/internal_transfer", { body: { ...body, cid: "move-1" } });
  assert.equal(repeated.data?.state, "COMMITTED");
  assert.equal(asked.length, 3);
});

test("an operator's act is repeated only if it was refused before anything happened", async () => {
  const act = () => client().api.POST("/admin/v1/submitters/{submitter}/suspend", { params: { path: { submitter } }, body: { reason: "r" } });
  replies = [{ status: 429, body: problem(429, "TOO_MANY_REQUESTS"), retryAfter: "0" }, { status: 503, body: problem(503, "UNAVAILABLE"), retryAfter: "0" }, { status: 200 }];
  assert.equal((await act()).response.status, 503);
  assert.equal(asked.length, 2);
  replies = ["cut"];
  await assert.rejects(act(), NoAnswerError);
  assert.equal(asked.length, 3);
});

test("an operator's change is sent once: its repeat could undo a later change by another operator", async () => {
  const options = { params: { path: { submitter } } };
  const { api } = client();
  const changes = {
    policy: () => api.PUT("/admin/v1/submitters/{submitter}/policy", { ...options, body: { enabled: false } as never }),
    callers: () => api.PUT("/admin/v1/submitters/{submitter}/callers", { ...options, body: {} as never }),
    submitter: () => api.PATCH("/admin/v1/submitters/{submitter}", { ...options, body: {} as never }),
  };
  for (const [name, change] of Object.entries(changes)) {
    asked = [];
    replies = ["cut", { status: 200 }];
    await assert.rejects(change(), NoAnswerError, name);
    replies = [{ status: 503, body: problem(503, "UNAVAILABLE"), retryAfter: "0" }, { status: 200 }];
    assert.equal((await change()).response.status, 503, name);
    assert.equal(asked.length, 2, name);
  }
});

test("what has one effect if it is sent twice is repeated", async () => {
  const { api } = client();
  const calls = {
    "an operator's read": () => api.GET("/admin/v1/submitters/{submitter}", { params: { path: { submitter } } }),
    "an operator's deposit": () => api.POST("/admin/v1/accounts/{user}/{asset}/deposits", { params: { path: { user: 7, asset: "USDT" } }, body: { id: "d-1" } as never }),
    "the removal of an address": () => api.DELETE("/api/v1/payout_address/{address_id}", { params: { path: { address_id: 1 } } }),
  };
  for (const [name, call] of Object.entries(calls)) {
    asked = [];
    replies = ["cut", { status: 200 }];
    assert.equal((await call()).response.status, 200, name);
    assert.equal(asked.length, 2, name);
  }
});

test("attempts end in time", async () => {
  replies = [{ status: 503, body: problem(503, "UNAVAILABLE"), retryAfter: "60" }];
  await assert.rejects(client().createTx(intent), (e) => e instanceof ProblemError && e.outcomeUnknown);
  assert.equal(asked.length, 1, "Retry-After is beyond the end");
  replies = ["cut"];
  const began = Date.now();
  await assert.rejects(client({ within: 200 }).createTx(intent), (e) => e instanceof NoAnswerError && e.outcomeUnknown);
  assert.ok(Date.now() - began < 2_000);
});

test("a page of a load balancer is no refusal of Fencepost", async () => {
  replies = [{ status: 403, body: "<html>" }];
  await assert.rejects(client().getTx("t"), (e) => e instanceof ProblemError && e.code === "" && e.outcomeUnknown);
});

test("a token that cannot be had is an error at once", async () => {
  const failing = client({ token: () => Promise.reject(new Error("no token")) });
  await assert.rejects(failing.createTx(intent), /no token/);
  assert.equal(asked.length, 0);
});

test("a wait goes on after failures, and ends with the signal", async () => {
  const tx = { txId: "t", state: "QUEUED" };
  replies = [{ status: 200, body: tx }, "cut", { status: 200, body: { ...tx, state: "CONFIRMED" } }];
  assert.equal((await client().waitFor("t", { pollFirst: 1 })).state, "CONFIRMED");
  replies = [{ status: 200, body: tx }];
  await assert.rejects(client().waitFor("t", { pollFirst: 1, signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
  replies = [{ status: 404, body: problem(404, "NOT_FOUND") }];
  await assert.rejects(client().waitFor("t"), (e) => e instanceof ProblemError && e.code === "NOT_FOUND");
});
