// Takes the events that Fencepost delivers by webhook, and keeps in a file the result of each payment.
// docs/receivers.md explains it, and docs/examples/README.md has the commands. It needs Node 20.10 or later.
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";

import { verifyWebhook, type Event } from "@fencepost/client";

const secrets = (process.env.WEBHOOK_SECRETS ?? "").split(","); // two during a rotation
if (!secrets.every((secret) => /^whsec_[A-Za-z0-9+/]{32,}=*$/.test(secret))) {
  throw new Error("WEBHOOK_SECRETS: want whsec_ and the base64 of 24 bytes or more; two are separated by a comma");
}
const file = process.env.STORE ?? "receiver.jsonl";
const [host, port] = (process.env.LISTEN ?? "127.0.0.1:8787").split(":");

const deliveries = new Set<string>();
const payments = new Map<string, { requestId: string; sequence: number; result: string }>();

/**
 * Keeps the id of the delivery and the effect of the event in one write. Returns "stored", or why there was no effect: the
 * delivery is "repeated", or the event "older" than another of its transaction.
 */
function store(id: string, event: Event): string {
  if (deliveries.has(id)) return "repeated";
  // flush: the answer follows only when the line is on the disk. With a database, this is one transaction.
  appendFileSync(file, `\n${JSON.stringify({ id, event })}`, { flush: true });
  return apply(id, event);
}

function apply(id: string, event: Event): string {
  deliveries.add(id);
  const known = payments.get(event.txId);
  if (known && known.sequence >= event.sequence) return "older";
  payments.set(event.txId, { requestId: event.requestId, sequence: event.sequence, result: result(event) });
  return "stored";
}

/** Returns what an event tells about the payment: "paid" and "failed" are final. */
function result(event: Event): string {
  if (event.type === "TxFailed") return "failed";
  if (event.type === "TxConfirmed" && event.data.final) return "paid";
  return "open"; // also for a type that a later version adds
}

for (const line of existsSync(file) ? readFileSync(file, "utf8").split("\n") : []) {
  try {
    const { id, event } = JSON.parse(line) as { id: string; event: Event };
    apply(id, event);
  } catch {
    // A write that a crash has cut off. It was not answered, so the event comes again.
  }
}

/** Returns the status of the answer: 204 once the event is stored. Any status but 2xx has it delivered again. */
async function receive(request: IncomingMessage): Promise<number> {
  let body = "";
  let delivery;
  try {
    for await (const chunk of request.setEncoding("utf8")) {
      body += chunk;
      if (body.length > 1 << 20) return 413;
    }
    delivery = verifyWebhook(secrets, request.headers, body); // the body as it came, not parsed and written again
  } catch {
    return 401;
  }
  const { id, event } = delivery;
  try {
    // An event without a txId is of no transaction: an operator tests the endpoint.
    const outcome = event.txId ? store(id, event) : "ignored";
    console.log(outcome, id, event.requestId ?? "", result(event));
    return 204;
  } catch (e) {
    console.error(e);
    return 503;
  }
}

createServer(async (request, response) => response.writeHead(await receive(request)).end()).listen(Number(port), host);
