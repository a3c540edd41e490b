package transfers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/store"
	"github.com/fencepost/fencepost/shared/store/internal/results"
	"github.com/fencepost/fencepost/shared/transfer"
)

// Address is a payout address that a user has put on the list.
type Address struct {
	ID         int64
	ChainID    uint64
	Address    string // 0x and 40 lower-case hex digits
	AddedAt    time.Time
	UsableFrom time.Time // by the delay of the query

	RemovedAt    *time.Time // nil: it is listed
	RemovedBy    string     // [ByUser], or the operator's name
	RemoveReason string     // set by an operator
}

// ByUser is the value of [Address.RemovedBy] for the user.
const ByUser = "user"

// AddressBlock is an operator's block: while it is open the user can add no address.
type AddressBlock struct {
	At     time.Time
	By     string
	Reason string
}

// maxAddresses bounds the listed addresses of a user, and the addresses that a user can add in 24
// hours.
const maxAddresses = 100

// The errors of a user's addresses. After each, nothing was stored.
var (
	ErrAddressesBlocked = errors.New("an operator has blocked new addresses of the user")
	ErrTooManyAddresses = fmt.Errorf("the user has %d addresses, or has added as many in 24 hours", maxAddresses)
	ErrNoAddress        = errors.New("the user has no listed address with this id")
	ErrNotBlocked       = errors.New("the user's addresses are not blocked")
)

// usableAfter is the time from which the delay of address x counts. A restored database lists addresses
// that were removed after its backup, so their delay counts from its acceptance.
const usableAfter = `greatest(x.added_at, (select max(c.at) from identity_change c))`

// addressColumns are the fields of an [Address], in their order, with the delay $2.
const addressColumns = `
select x.address_id, x.chain_id, x.address, x.added_at, ` + usableAfter + ` + $2::interval,
       x.removed_at, coalesce(x.removed_by, ''), coalesce(x.remove_reason, '')
  from payout_address x
 where x.user_id = $1`

const addAddress = `
insert into payout_address (user_id, chain_id, address)
select $1, $2, $3
 where (select is_accepted_database())
   and not exists (select from payout_address_block where user_id = $1 and lifted_at is null)
   and (select count(*) from payout_address
         where user_id = $1 and (removed_at is null or added_at > clock_timestamp() - interval '24 hours')) < $4
    on conflict do nothing`

const listedAddress = addressColumns + ` and x.chain_id = $3 and x.address = $4 and x.removed_at is null`

// standing returns whether the database is the one written last, and whether an operator has blocked
// new addresses of user $1.
const standing = `
select is_accepted_database(), exists (select from payout_address_block where user_id = $1 and lifted_at is null)`

// AddAddress adds the address to the user's list. If it is listed already, its delay does not start
// again. The error wraps one of [ErrAddressesBlocked], [ErrTooManyAddresses] and [transfer.ErrForeign].
func (s *Store) AddAddress(ctx context.Context, user int64, chain uint64, address string, delay time.Duration) (a Address, isNew bool, err error) {
	var found []Address
	var ours, blocked bool
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(`select `+userLock, user)
	b.Queue(addAddress, user, int64(chain), address, maxAddresses).Exec(results.Any(&isNew))
	b.Queue("commit")
	b.Queue(listedAddress, user, delay, int64(chain), address).Query(results.Into(&found, pgx.RowToStructByPos[Address]))
	b.Queue(standing, user).QueryRow(results.Scan(&ours, &blocked))
	err = s.send(ctx, b)
	switch {
	case err != nil:
	case !ours:
		err = transfer.ErrForeign
	case len(found) == 1:
		return found[0], isNew, nil
	case blocked:
		err = ErrAddressesBlocked
	case isNew: // and removed since
		err = transfer.ErrMoved
	default:
		err = ErrTooManyAddresses
	}
	return Address{}, false, fmt.Errorf("add an address of user %d: %w", user, err)
}

// RemovalOfAddress removes an address from a user's list.
type RemovalOfAddress struct {
	UserID int64
	ID     int64
	By     string // [ByUser], or the operator's name
	Reason string // an operator's; empty for the user
}

const removeAddress = `
update payout_address
   set removed_at = clock_timestamp(), removed_by = $3, remove_reason = nullif($4, '')
 where user_id = $1 and address_id = $2 and removed_at is null and (select is_accepted_database())`

const addressOf = addressColumns + ` and x.address_id = $3`

// RemoveAddress removes the address from the list, under the lock under which payouts are stored. After
// it returns, no payout to the address is stored. A payout that was stored before continues. The error
// wraps [ErrNoAddress] or [transfer.ErrForeign].
func (s *Store) RemoveAddress(ctx context.Context, r RemovalOfAddress, delay time.Duration) (Address, error) {
	var found []Address
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(`select `+userLock, r.UserID)
	b.Queue(removeAddress, r.UserID, r.ID, r.By, r.Reason)
	b.Queue("commit")
	b.Queue(addressOf, r.UserID, delay, r.ID).Query(results.Into(&found, pgx.RowToStructByPos[Address]))
	err := s.send(ctx, b)
	switch {
	case err != nil:
	case len(found) == 0:
		err = ErrNoAddress
	case found[0].RemovedAt == nil:
		err = transfer.ErrForeign
	default:
		return found[0], nil
	}
	return Address{}, fmt.Errorf("remove address %d of user %d: %w", r.ID, r.UserID, err)
}

// UserAddresses is the content of a user's list.
type UserAddresses struct {
	List  []Address
	Block *AddressBlock // nil: the user can add addresses
}

const (
	listedAddresses = addressColumns + ` and x.removed_at is null order by x.address_id`
	everyAddress    = addressColumns + ` and x.address_id < $4 order by x.address_id desc limit $3`
)

// openBlock returns the block that prevents user $1 from adding addresses.
const openBlock = `select at, by, reason from payout_address_block where user_id = $1 and lifted_at is null`

// Addresses returns the user's listed addresses. With newest above 0 it returns instead that many of all, also
// removed ones, with ids below the id below, newest first. The error wraps [transfer.ErrForeign] in a database that
// is not the one written last.
func (s *Store) Addresses(ctx context.Context, user int64, delay time.Duration, newest int, below int64) (u UserAddresses, err error) {
	var ours, blocked bool
	b := new(pgx.Batch)
	b.Queue(standing, user).QueryRow(results.Scan(&ours, &blocked))
	statement, args := listedAddresses, []any{user, delay}
	if newest > 0 {
		statement, args = everyAddress, append(args, newest, below)
	}
	b.Queue(statement, args...).Query(results.Into(&u.List, pgx.RowToStructByPos[Address]))
	b.Queue(openBlock, user).Query(results.First(&u.Block, pgx.RowToStructByPos[AddressBlock]))
	if err = s.send(ctx, b); err == nil && !ours {
		err = transfer.ErrForeign
	}
	return u, results.Wrap(err, "list the addresses of user %d", user)
}

const blockAddresses = `
insert into payout_address_block (user_id, by, reason)
select $1, $2, $3 where (select is_accepted_database())
    on conflict do nothing`

// BlockAddresses prevents the user from adding addresses until an operator lifts the block. If one is
// open it changes nothing. The error wraps [transfer.ErrForeign].
func (s *Store) BlockAddresses(ctx context.Context, user int64, by, reason string) error {
	var ours, blocked bool
	b := new(pgx.Batch)
	b.Queue("begin")
	b.Queue(`select `+userLock, user)
	b.Queue(blockAddresses, user, by, reason)
	b.Queue("commit")
	b.Queue(standing, user).QueryRow(results.Scan(&ours, &blocked))
	err := s.send(ctx, b)
	if err == nil && !ours {
		err = transfer.ErrForeign
	}
	return results.Wrap(err, "block the addresses of user %d", user)
}

const liftBlock = `
update payout_address_block set lifted_at = clock_timestamp(), lifted_by = $2, lift_reason = $3
 where user_id = $1 and lifted_at is null and (select is_accepted_database())`

// LiftAddressBlock lets the user add addresses again. The error wraps [ErrNotBlocked] if no block is
// open, or the database is not the one written last.
func (s *Store) LiftAddressBlock(ctx context.Context, user int64, by, reason string) error {
	tag, err := store.ExecCarrying(ctx, s.db, liftBlock, user, by, reason)
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNotBlocked
	}
	return results.Wrap(err, "unblock the addresses of user %d", user)
}
