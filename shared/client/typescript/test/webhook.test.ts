import assert from "node:assert/strict";
import { test } from "node:test";

import { verifyWebhook } from "@fencepost/client";
import { Webhook } from "standardwebhooks";

const secret = "whsec_QUJDQUJDQUJDQUJDQUJDQUJDQUJDQUJD";
const other = "whsec_REVGREVGREVGREVGREVGREVGREVGREVG";
const body = '{"type" : "TxAccepted", "txId": "t"}';

function signed(at = new Date()): Record<string, string> {
  return {
    "webhook-id": "t.TxAccepted.1",
    "webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
    "webhook-signature": new Webhook(secret).sign("t.TxAccepted.1", at, body),
  };
}

test("a delivery is verified by any of the secrets, from either kind of headers", () => {
  for (const headers of [signed(), new Headers(signed())]) {
    const { id, event } = verifyWebhook([other, secret], headers, body);
    assert.deepEqual([id, event.type, event.txId], ["t.TxAccepted.1", "TxAccepted", "t"]);
  }
});

test("another secret, another body, an old delivery and one without a signature are refused", () => {
  assert.throws(() => verifyWebhook(other, signed(), body));
  assert.throws(() => verifyWebhook(secret, signed(), body.replace("t", "u")));
  assert.throws(() => verifyWebhook(secret, signed(new Date(Date.now() - 600_000)), body));
  assert.throws(() => verifyWebhook(secret, {}, body));
  assert.throws(() => verifyWebhook([], signed(), body));
});
