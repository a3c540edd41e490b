package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fencepost/fencepost/shared/txmanager"
)

// MatchingIntent is an intent that a transaction on the chain may belong to.
type MatchingIntent struct {
	TxID      string             `json:"txId"`
	RequestID string             `json:"requestId"`
	State     txmanager.State    `json:"state"`
	SubState  txmanager.SubState `json:"subState,omitempty"`
	Payload   []byte             `json:"-"`
}

// maxMatching is the largest number of matching intents that are listed, the newest first.
const maxMatching = 100

// MatchingIntents lists the newest intents of s with t's recipient, value and data. It skips
// intents whose payload is archived.
func (s *Store) MatchingIntents(ctx context.Context, sub txmanager.Submitter, t txmanager.ConsumingTx) ([]MatchingIntent, error) {
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
		 limit $5`, sub, to, t.ValueWei, toHex(t.Data), maxMatching)
	if err != nil {
		return nil, fmt.Errorf("find intents like %s: %w", t.Hash, err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[MatchingIntent])
}

// OwnVersions are the stored versions for the nonces of s from one on and below another, by
// nonce.
func (s *Store) OwnVersions(ctx context.Context, sub txmanager.Submitter, from, below uint64) (map[uint64][]txmanager.Hash, error) {
	rows, err := s.db.Query(ctx, `select nonce, tx_hash from tx_version where submitter = $1 and nonce >= $2 and nonce < $3`, sub, Bigint(from), Bigint(below))
	if err != nil {
		return nil, fmt.Errorf("read the versions of %s from nonce %d on: %w", sub, from, err)
	}
	own := make(map[uint64][]txmanager.Hash)
	var n int64
	var hash string
	_, err = pgx.ForEachRow(rows, []any{&n, &hash}, func() error {
		parsed, err := txmanager.ParseHash(hash)
		own[uint64(n)] = append(own[uint64(n)], parsed)
		return err
	})
	return own, err
}
