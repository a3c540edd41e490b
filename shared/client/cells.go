package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrNoCell reports an account that the list of cells does not name, or a transaction that no cell has.
var ErrNoCell = errors.New("in no cell")

// ErrTwoCells reports a list that has the key of one account in two cells.
var ErrTwoCells = errors.New("want it in one cell")

// Cells has a client for each of several deployments, and the list of which account is in which. Create it
// with [NewCells] and share it.
type Cells struct {
	clients map[string]*Client // by the cell's name
	of      map[string]string  // the cell's name by account
}

// NewCells creates the clients from the list, which terraform/cells renders as the output client_list:
//
//	{"a": {"url": "https://api.fencepost.example/cells/a", "accounts": ["eip155:1:0x…"]}}
//
// The options are for every cell, without URL. The error names the fault in the list. An account in two
// cells is wrong, and so is an address that is in two cells for two chains: it is one key.
func NewCells(list []byte, o Options) (*Cells, error) {
	cells, err := parseOne[map[string]struct {
		URL      string   `json:"url"`
		Accounts []string `json:"accounts"`
	}](list)
	if err == nil && len(cells) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("client: list of cells: %w", err)
	}
	if o.URL != "" {
		return nil, fmt.Errorf("client: URL %q: the list of cells has the URLs; leave it empty", o.URL)
	}
	c := &Cells{clients: make(map[string]*Client), of: make(map[string]string)}
	keys := make(map[string]string) // the cell's name by address
	for _, name := range slices.Sorted(maps.Keys(cells)) {
		one := o
		one.URL = cells[name].URL
		if c.clients[name], err = New(one); err != nil {
			return nil, fmt.Errorf("cell %s: %w", name, err)
		}
		for _, account := range cells[name].Accounts {
			account = accountName(account)
			address := account[strings.LastIndex(account, ":")+1:]
			if other, ok := keys[address]; ok && other != name {
				return nil, fmt.Errorf("client: list of cells: the key of %s is in cell %s and in cell %s: %w", account, other, name, ErrTwoCells)
			}
			keys[address], c.of[account] = name, name
		}
	}
	return c, nil
}

// accountName is the account as the list has it: the hex digits of EVM addresses in lower case.
func accountName(account string) string {
	if strings.HasPrefix(account, "eip155:") {
		return strings.ToLower(account)
	}
	return account
}

// Names returns the cells' names in order.
func (c *Cells) Names() []string { return slices.Sorted(maps.Keys(c.clients)) }

// Named returns the client of the cell, for calls that concern no account, such as lists of all
// transactions and events. A cell lists only its accounts' transactions. The error lists the names.
func (c *Cells) Named(name string) (*Client, error) {
	if found := c.clients[name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("client: no cell %q; there are %s", name, strings.Join(c.Names(), ", "))
}

// Of returns the client of the account's cell, for every call about the account and its transactions. The
// error wraps [ErrNoCell] if the list does not have the account.
func (c *Cells) Of(submitter string) (*Client, error) {
	name, ok := c.of[accountName(submitter)]
	if !ok {
		return nil, fmt.Errorf("client: account %q is %w: add it to one cell in terraform/cells, and load the new list", submitter, ErrNoCell)
	}
	return c.clients[name], nil
}

// OfTx asks each cell for the transaction, all at once, and returns the client of the cell that has it. Callers
// that know the account use [Cells.Of], which sends no request. The error wraps [ErrNoCell] if every cell
// answered that it has no such transaction. Otherwise it names the cells that did not answer.
func (c *Cells) OfTx(ctx context.Context, txID string) (*Client, error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	var found atomic.Pointer[Client]
	err := inEach(c.Names(), func(name string) error {
		_, err := c.clients[name].Tx(asking, txID)
		if CodeOf(err) == "NOT_FOUND" {
			return nil
		}
		if err == nil {
			found.Store(c.clients[name])
			stop() // a cell that is down would be asked again for as long as Options.Within
		}
		return err
	})
	if has := found.Load(); has != nil {
		return has, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("client: transaction %q is %w", txID, ErrNoCell)
}

// inEach calls do for all cells at once. The error names the cells whose calls failed.
func inEach(cells []string, do func(cell string) error) error {
	errs := make([]error, len(cells))
	var calls sync.WaitGroup
	for i, name := range cells {
		calls.Go(func() {
			if err := do(name); err != nil {
				errs[i] = fmt.Errorf("cell %s: %w", name, err)
			}
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

// CreateTx posts an intent to the cell of its submitter.
func (c *Cells) CreateTx(ctx context.Context, in Intent) (Created, error) {
	cell, err := c.Of(in.Submitter)
	if err != nil {
		return Created{}, err
	}
	return cell.CreateTx(ctx, in)
}

// CreateTxBatch posts each intent to the cell of its submitter, in one batch for each cell, and returns the
// results in the order of the intents. If an account is in no cell, nothing is posted. The error names
// the cells whose batch failed. The results of these have the status 0, and those of the others are valid.
func (c *Cells) CreateTxBatch(ctx context.Context, all []Intent) ([]BatchResult, error) {
	parts := make(map[string][]int) // places in all, by the cell's name
	for i, in := range all {
		if _, err := c.Of(in.Submitter); err != nil {
			return nil, err
		}
		name := c.of[accountName(in.Submitter)]
		parts[name] = append(parts[name], i)
	}
	results := make([]BatchResult, len(all))
	return results, inEach(slices.Sorted(maps.Keys(parts)), func(name string) error {
		var part []Intent
		for _, place := range parts[name] {
			part = append(part, all[place])
		}
		got, err := c.clients[name].CreateTxBatch(ctx, part)
		if err != nil {
			return err
		}
		if len(got) != len(part) {
			return fmt.Errorf("%w: got %d results for %d intents", ErrUnknown, len(got), len(part))
		}
		for i, place := range parts[name] {
			results[place] = got[i]
		}
		return nil
	})
}
