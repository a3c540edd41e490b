// The client against a running deployment, by the variables that the emulator prints.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Fencepost, ProblemError, pages, type ListedTx, type ProblemCode } from "@fencepost/client";

function variable(name: string): string {
  const value = process.env[name];
  assert.ok(value, `the variable ${name}`);
  return value;
}

const url = variable("API");
const submitter = variable("SUBMITTER");
const client = new Fencepost({ url, token: () => variable("TOKEN") });
const operator = new Fencepost({ url, token: () => variable("OPERATOR_TOKEN") });
const payload = { to: "0x00000000000000000000000000000000000cafe0", value: "1" };

/** Awaits a refusal with the code. */
async function refused(call: Promise<unknown>, code: ProblemCode, status: number): Promise<ProblemError> {
  let caught: unknown;
  await call.catch((e: unknown) => (caught = e));
  assert.ok(caught instanceof ProblemError, `got ${caught}, want ${code}`);
  assert.deepEqual([caught.code, caught.status, caught.problem.type], [code, status, `/errors/${code}`]);
  return caught;
}

test("an intent is sent, repeated, refused under a used requestId, and waited for", async () => {
  const intent = { submitter, requestId: "live-1", payload };
  const { txId } = await client.createTx(intent);
  assert.equal((await client.createTx(intent)).txId, txId);
  const conflict = await refused(client.createTx({ ...intent, payload: { ...payload, value: "2" } }), "REQUEST_ID_CONFLICT", 409);
  assert.equal(conflict.outcomeUnknown, false);
  const tx = await client.waitFor(txId, { signal: AbortSignal.timeout(120_000) });
  assert.equal(tx.state, "CONFIRMED");
  assert.equal(tx.receipt?.succeeded, true);
  assert.equal((await client.getTxByRequest(submitter, "live-1")).txId, txId);
});

test("a batch is sent, listed by pages, and its last intent is cancelled", async () => {
  const ids = Array.from({ length: 20 }, (_, i) => `batch-${i}`);
  const results = await client.createTxBatch([...ids.map((requestId) => ({ submitter, requestId, payload })), { submitter, requestId: "batch-bad", payload: { to: "0x12" } }]);
  assert.deepEqual(results.map((r) => r.status), [...ids.map(() => 202), 400]);
  assert.equal(results.at(-1)?.code, "INVALID_FIELD");
  const last = results.at(-2)?.txId ?? "";
  assert.equal((await client.cancelTx(last)).outcome, "CANCELLED");
  const listed: ListedTx[] = [];
  for await (const tx of client.listTx({ submitter, pageSize: 7 })) {
    if (tx.requestId.startsWith("batch-")) listed.push(tx);
  }
  assert.deepEqual(listed.map((tx) => tx.requestId), [...ids].reverse());
  for await (const tx of client.listTx({ submitter, state: "FAILED" })) {
    assert.deepEqual([tx.txId, tx.subState], [last, "CANCELLED"]);
  }
});

test("refusals have their codes, and each code a page", async () => {
  const nobody = new Fencepost({ url, token: () => "no.token.atall" });
  await refused(nobody.getTx("01a1fda0-b1f9-7b07-a2c1-57c667e395bc"), "UNAUTHORIZED", 401);
  await refused(client.getTx("01a1fda0-b1f9-7b07-a2c1-57c667e395bc"), "NOT_FOUND", 404);
  await refused(client.createTx({ submitter: "eip155:1337:0x00000000000000000000000000000000000000aa", requestId: "r", payload }), "UNKNOWN_SUBMITTER", 404);
  const wrong = await refused(client.createTx({ submitter, requestId: "r", payload: { to: "0x12" } }), "INVALID_FIELD", 400);
  assert.equal(wrong.field, "payload.to");
  const page = await fetch(new URL(String(wrong.problem.type), url));
  assert.equal(page.status, 200);
  assert.match(await page.text(), /^INVALID_FIELD\n/);
  const browser = await fetch(new URL("/errors/INVALID_FIELD", url), { headers: { Accept: "text/html" } });
  assert.equal(browser.headers.get("Content-Type"), "text/html; charset=utf-8");
  const document = await fetch(new URL("/openapi.yaml", url));
  assert.match(await document.text(), /^openapi: 3\.1/);
});

test("an operator reads any list by pages", async () => {
  const seen: string[] = [];
  const all = pages(
    (pageToken) => operator.api.GET("/admin/v1/submitters", { params: { query: { pageSize: 1, pageToken } } }),
    (page) => page.submitters,
  );
  for await (const one of all) seen.push(one.submitter);
  assert.ok(seen.length > 1 && seen.includes(submitter), `got ${seen}`);
});

test("events are read again after a cursor", async () => {
  const seen: string[] = [];
  let cursor = "";
  for await (const one of client.listEvents({ submitter, pageSize: 3 })) {
    seen.push(one.cursor);
    cursor ||= one.cursor;
  }
  assert.ok(seen.length > 3, `got ${seen.length} events`);
  const later: string[] = [];
  for await (const one of client.listEvents({ submitter, pageToken: cursor })) later.push(one.cursor);
  assert.deepEqual(later.slice(0, seen.length - 1), seen.slice(1));
});
