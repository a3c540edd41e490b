// Bodies that must not compile. No line of this file runs.
import type { CreateRequest, Fencepost, Intent, ProblemCode } from "@fencepost/client";

const submitter = "eip155:1337:0x02e40fe26b255d5c8dfb71cbfeb1bf9ff7ab917d";
const to = "0x00000000000000000000000000000000000cafe0";

export async function misspelt(client: Fencepost): Promise<void> {
  // @ts-expect-error: submitter is misspelt
  await client.createTx({ submiter: submitter, requestId: "order-4711", payload: { to } });
  // @ts-expect-error: to is misspelt
  await client.createTx({ submitter, requestId: "order-4711", payload: { too: to } });
  // @ts-expect-error: gas is misspelt
  await client.createTx({ submitter, requestId: "order-4711", payload: { to, gass: "21000" } });
  // @ts-expect-error: requestId is misspelt
  await client.createTx({ submitter, requestID: "order-4711", payload: { to } });
  // @ts-expect-error: validUntil is misspelt
  await client.createTx({ submitter, requestId: "wage-ann", handler: "payroll", payload: 1, validTill: "2027-01-31T12:00:00Z" });
  // @ts-expect-error: an amount is a text
  await client.createTx({ submitter, requestId: "order-4711", payload: { to, value: 1 } });
  // @ts-expect-error: a requestId is a text
  await client.createTx({ submitter, requestId: 4711, payload: { to } });
  // @ts-expect-error: the payload is missing
  await client.createTx({ submitter, requestId: "order-4711" });
  // @ts-expect-error: an intent of a batch needs its requestId
  await client.createTxBatch([{ submitter, payload: { to } }]);
  // @ts-expect-error: gas is misspelt
  await client.createTxBatch([{ submitter, requestId: "order-4711", payload: { to, gass: "21000" } }]);
  // @ts-expect-error: there is no such path
  await client.api.GET("/api/v1/txs");
  // @ts-expect-error: reason is misspelt
  await client.api.POST("/admin/v1/submitters/{submitter}/suspend", { params: { path: { submitter } }, body: { reson: "a stolen token" } });
}

// @ts-expect-error: there is no such code
export const unknown: ProblemCode = "REQUEST_ID_CONFLICTS";

// These compile.
export async function taken(client: Fencepost, one: CreateRequest, many: Intent[]): Promise<void> {
  await client.createTx(one);
  await client.createTx({ submitter, requestId: "order-4711", payload: { to, function: "transfer(address,uint256)", args: [to, "1000"] } });
  await client.createTx({ submitter, requestId: "wage-ann", handler: "payroll", payload: { person: "ann" } });
  await client.createTxBatch(many);
  await client.createTxBatch([{ submitter, requestId: "a", payload: { to } }, { submitter, requestId: "wage-ann", handler: "payroll", payload: 1 }]);
}

export const right: { codes: ProblemCode[]; bodies: CreateRequest[]; intents: Intent[] } = {
  codes: ["REQUEST_ID_CONFLICT", "UNAVAILABLE", "INSUFFICIENT_BALANCE", "PROPOSAL_STALE"],
  bodies: [
    { submitter, requestId: "order-4711", payload: { to, value: "1", maxGas: "60000" } },
    { submitter, payload: { to, function: "transfer(address,uint256)", args: [to, "1000"], gas: 60000 } },
    { submitter, requestId: "wage-ann", handler: "payroll", payload: { person: "ann" } },
  ],
  intents: [{ submitter, requestId: "order-4711", payload: { data: "0x" } }],
};
