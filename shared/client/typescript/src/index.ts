export { Fencepost, pages } from "./client.js";
export type {
  Cancelled, CancelOutcome, Created, CreateRequest, Event, EventWithCursor, Exact, Intent, IntentResult, ListedTx, Options, Tx, WaitOptions,
} from "./client.js";
export { NoAnswerError, ProblemError } from "./problem.js";
export type { Problem, ProblemCode } from "./problem.js";
export { verifyWebhook } from "./webhook.js";
export type { Delivery } from "./webhook.js";
export type { components, operations, paths } from "./schema.js";
