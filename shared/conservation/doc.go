// Package conservation checks the ledgers' own journals for money that was created or lost, and
// halts new transfers after a finding.
//
// It never sums by the transfers' states: while a call is pending no state shows where the money
// is, and such a sum would halt a correct system. It compares five kinds of statement instead.
//
//   - On each side an account's balance is the sum of the applied entries in the side's own journal. Both
//     are read at one point.
//   - A deposit implies the withdrawal with the same req_id, user, asset and units on the other side. A refund
//     implies it on the same side. A transfer never has both.
//   - Each entry that a side applied for a transfer belongs to an existing transfer, with the accounts and units of
//     its row.
//   - A COMMITTED transfer has its withdrawal and its deposit, a ROLLED_BACK one its withdrawal and its refund, a
//     FAILED one neither.
//   - An asset has the same precision on each side. Otherwise equal units are not equal money.
//
// An implied entry is required only in journals that were read later than the statement that
// implies it. So a run reads in this order: the transfers that became final, the journals of
// Trading and of payouts, Funding, Trading again. A credit that only the last read has seen is
// evaluated by the next run.
//
// In addition [Payments] reads the chain: it compares the payers' payments in final blocks with the
// transfers, in both directions.
//
// The package imports no database and no network code: it declares the ports that it needs.
package conservation
