package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/nonce"
)

// Alike is an intent that may be what a transaction on chain was.
type Alike struct {
	TxID      string         `json:"txId"`
	RequestID string         `json:"requestId"`
	State     nonce.State    `json:"state"`
	SubState  nonce.SubState `json:"subState,omitempty"`
	Payload   []byte         `json:"-"`
}

// alikeMost bounds the intents that are listed, the newest first.
const alikeMost = 100

// IntentsAlike lists the newest intents of s that go where t went, with t's value
// and data, but for those whose payload is archived.
func (s *Store) IntentsAlike(ctx context.Context, sub nonce.Submitter, t nonce.Taker) ([]Alike, error) {
	var to *string
	if t.To != nil {
		to = textOrNull(t.To.String())
	}
	rows, err := s.db.Query(ctx, `
		select m.tx_id, m.request_id, m.state, coalesce(m.sub_state, ''), d.body
		  from managed_tx m
		  join tx_document d on d.tx_id = m.tx_id and d.name = 'payload'
		 where m.submitter = $1 and m.handler is null and m.reservation is null and d.body ->> 'to' is not distinct from $2
		   and coalesce(d.body ->> 'value', '0') = $3 and coalesce(d.body ->> 'data', '0x') = $4
		 order by m.seq desc
		 limit $5`, sub, to, t.ValueWei, toHex(t.Data), alikeMost)
	if err != nil {
		return nil, fmt.Errorf("find intents like %s: %w", t.Hash, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Alike])
}

// OwnVersions are the versions that are stored for the nonces of s from one on and below
// another, by nonce.
func (s *Store) OwnVersions(ctx context.Context, sub nonce.Submitter, from, below uint64) (map[uint64][]nonce.Hash, error) {
	rows, err := s.db.Query(ctx, `select nonce, tx_hash from tx_version where submitter = $1 and nonce >= $2 and nonce < $3`, sub, bigint(from), bigint(below))
	if err != nil {
		return nil, fmt.Errorf("read the versions of %s from nonce %d on: %w", sub, from, err)
	}
	own := make(map[uint64][]nonce.Hash)
	var n int64
	var hash string
	_, err = pgx.ForEachRow(rows, []any{&n, &hash}, func() error {
		parsed, err := nonce.ParseHash(hash)
		own[uint64(n)] = append(own[uint64(n)], parsed)
		return err
	})
	return own, err
}
