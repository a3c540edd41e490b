// Package conservation judges whether any money came from nothing or is gone, by
// what the ledgers themselves have written down, and stops new transfers if so.
//
// It never sums by the transfers' states: while a call is pending the money is where
// no state says, and such a sum would halt a healthy system. It holds five kinds of
// statement against each other instead.
//
//   - On each side an account's balance is the sum of what the side's own journal
//     says was applied to it, both read at one point.
//   - A deposit implies the withdrawal of the same req_id, user, asset and units on
//     the other side; a refund implies it on its own; there are never both.
//   - Whatever a side applied for a transfer is by a transfer that exists, between
//     the accounts and for the units that its row says.
//   - A transfer that is COMMITTED has its withdrawal and its deposit, one that is
//     ROLLED_BACK its withdrawal and its refund, one that is FAILED neither.
//   - An asset has one precision, on each side: else equal units are not equal money.
//
// What must be there is looked for only in what was read later than the statement
// that implies it. So a run reads in this order: the transfers that became final,
// the journals of Trading and of payouts, Funding, Trading once more. A credit that
// only the last read has seen waits for the next run.
//
// Beside that, [Payments] reads the chain itself: what left the payers' accounts in final
// blocks is held against the transfers, both ways.
//
// The package knows no database and no network: it declares the ports that it needs.
package conservation
