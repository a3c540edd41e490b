import { Webhook, WebhookVerificationError } from "standardwebhooks";

import type { Event } from "./client.js";

/** A delivery whose signature is valid. */
export interface Delivery {
  /** The same at each attempt: drop what you have. */
  id: string;
  event: Event;
}

const names = ["webhook-id", "webhook-timestamp", "webhook-signature"] as const;

/**
 * Verifies a delivery by the secrets of the endpoint, of which two can be in use during a rotation. The body must be as it
 * came, not parsed and written again. Throws an error if no secret has signed it within five minutes.
 */
export function verifyWebhook(
  secrets: string | readonly string[],
  headers: Headers | Record<string, string | readonly string[] | undefined>,
  body: string,
): Delivery {
  const given: Record<string, string> = {};
  for (const name of names) {
    const value = headers instanceof Headers ? headers.get(name) : headers[name];
    given[name] = typeof value === "string" ? value : "";
  }
  let last: unknown = new WebhookVerificationError("no secret is given");
  for (const secret of typeof secrets === "string" ? [secrets] : secrets) {
    try {
      return { id: given["webhook-id"] ?? "", event: new Webhook(secret).verify(body, given) as Event };
    } catch (e) {
      last = e;
    }
  }
  throw last;
}
