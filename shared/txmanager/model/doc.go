// Package model checks reservations beside intents, by walking every interleaving of
// two workers, two reservations and two intents of one submitter, with crashes, time-
// outs, marks that arrive late, twice or never, cancels, and owners who send by
// themselves what they should only hand in.
//
// A step is what is atomic outside: one load, one fenced write, one mark that arrives,
// one send, one nonce that the chain consumes. Between a load and its write everything
// else may happen. Time has no number: a reservation's time may be over at any moment.
// That a lease fences is shown by shared/lease/model; here a rule says that it does.
//
// Two promises are judged. In no state has a nonce no holder, or versions of two
// payloads, or been consumed by what is not its holder's; and from every state there is
// a way to an end, where the chain has consumed every nonce handed out.
package model
