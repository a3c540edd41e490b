// Pays a list. Each row becomes one transaction under the row's own requestId, so it is safe to run the program again
// after any interruption: no row is paid twice. docs/examples/README.md has the commands.
import { readFileSync } from "node:fs";

import { Fencepost, NoAnswerError, ProblemError } from "@fencepost/client";

interface Row {
  requestId: string;
  to: string;
  wei: string;
  txId?: string; // missing: it was not accepted
  state: string;
  detail: string; // the transaction, or the reason
}

/** Reads the list: a line of names, then requestId, to and wei of each payout, without quotes. */
function read(name: string): Row[] {
  const [names, ...lines] = readFileSync(name, "utf8").trim().split(/\r?\n/);
  if (names !== "requestId,to,wei") throw new Error(`${name}: want the line requestId,to,wei first, not ${names}`);
  const rows = lines.map((line) => {
    const [requestId, to, wei, ...more] = line.split(",");
    if (!requestId || !to || !wei || more.length > 0) {
      throw new Error(`${name}: want requestId,to,wei, not ${line}`);
    }
    return { requestId, to, wei, state: "UNKNOWN", detail: "" };
  });
  if (new Set(rows.map((row) => row.requestId)).size < rows.length) {
    throw new Error(`${name}: a requestId is there twice`); // the two would be one payment
  }
  return rows;
}

function variable(name: string): string {
  const value = process.env[name];
  if (!value) {
    throw new Error(`the variable ${name} is not set: the emulator prints it`);
  }
  return value;
}

// A program that runs for more than an hour fetches a new token in `token`.
const client = new Fencepost({ url: variable("API"), token: () => variable("TOKEN") });
const submitter = variable("SUBMITTER");

/** Has the payout accepted. Posted again, it is the same transaction. The client repeats a call without an answer. */
async function post(row: Row): Promise<void> {
  try {
    row.txId = (await client.createTx({ submitter, requestId: row.requestId, payload: { to: row.to, value: row.wei } })).txId;
  } catch (e) {
    if (!(e instanceof ProblemError) && !(e instanceof NoAnswerError)) throw e;
    [row.state, row.detail] = unaccepted(e);
  }
}

/**
 * Returns what a post without a txId means. After most refusals, such as 401 and 403, it is unknown whether an earlier post
 * of the row was accepted.
 */
function unaccepted(e: ProblemError | NoAnswerError): [state: string, detail: string] {
  if (e instanceof ProblemError && !e.outcomeUnknown) {
    if (e.code === "REQUEST_RECORDED") return ["RECORDED", `on the chain already: do not pay: ${e.problem.detail}`];
    if (e.status === 400 || e.status === 422 || e.code === "REQUEST_ID_CONFLICT") return ["REFUSED", e.message];
  }
  return ["UNKNOWN", `run this again: ${e.message}`];
}

async function wait(row: Row): Promise<void> {
  if (row.txId === undefined) return;
  try {
    const tx = await client.waitFor(row.txId);
    row.state = tx.state;
    row.detail = tx.state === "CONFIRMED" ? `${tx.txHash}` : `${tx.subState} ${tx.lastError ?? ""}`;
  } catch (e) {
    row.state = "OPEN";
    row.detail = `run this again: ${e}`;
  }
}

const [list] = process.argv.slice(2);
if (list === undefined) {
  throw new Error("want one argument: the list, such as docs/examples/payouts/payouts.csv");
}
const rows = read(list);
for (const row of rows) await post(row); // all are accepted first, and carried out in this order
for (const row of rows) await wait(row);

const cells = [["requestId", "to", "wei", "state", "transaction"], ...rows.map((r) => [r.requestId, r.to, r.wei, r.state, r.detail])];
const widths = [0, 1, 2, 3].map((column) => Math.max(...cells.map((line) => line[column]?.length ?? 0)));
for (const line of cells) console.log(line.map((text, column) => text.padEnd(widths[column] ?? 0)).join("  "));

const open = rows.filter((row) => row.state !== "CONFIRMED").length;
if (open > 0) {
  console.error(`payouts: ${open} of ${rows.length} are not CONFIRMED`);
  process.exitCode = 1;
}
