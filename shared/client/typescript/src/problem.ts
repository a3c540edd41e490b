import type { components, operations } from "./schema.js";

/** The body of a refusal, as RFC 9457 describes it. */
export type Problem = components["schemas"]["Problem"];

type Answers<O> = O extends { responses: infer R } ? R[keyof R] : never;
type ProblemOf<A> = A extends { content: { "application/problem+json": infer P } } ? P : never;
type CodeOf<P> = P extends { code: infer C } ? (string extends C ? never : C) : never;

/** Each code that the OpenAPI document gives to a refusal. docs/errors.md explains them. */
export type ProblemCode = CodeOf<ProblemOf<Answers<operations[keyof operations]>>>;

/** A code of a later version of the service is a text that this version does not know. */
type AnyCode = ProblemCode | (string & {});

/** An answer that is a refusal. `code` is the contract; texts are for people and may change. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";

  /** @internal */
  constructor(
    /** The HTTP status. */
    readonly status: number,
    /** What was refused and why; "" where the answer was none of Fencepost's, such as a load balancer's page. */
    readonly code: AnyCode,
    /** The whole body. It has further members for some codes, such as `left` or `req_id`. */
    readonly problem: Partial<Problem> & Record<string, unknown>,
    /** Whether the request may have been carried out, by this attempt or an earlier one: repeat it, or read the state. */
    readonly outcomeUnknown: boolean,
  ) {
    super([status, code, problem.field, problem.detail].filter(Boolean).join(" "));
  }

  /** The field or parameter at fault, if the answer names one. */
  get field(): string | undefined {
    return this.problem.field;
  }
}

/** No answer came, or none could be read. The request may have been carried out: repeat it, or read the state. */
export class NoAnswerError extends Error {
  override readonly name = "NoAnswerError";
  readonly outcomeUnknown = true;
}
