package txmanager

import "context"

// ReleaseSubmitter ends an incident: see [releaseSubmitter].
func (w *Worker) ReleaseSubmitter(ctx context.Context, s Submitter, l ReleaseRequest) (ReleaseResult, error) {
	return w.Service.releaseSubmitter(ctx, s, l)
}

// ReserveNonces reserves nonces: see [reserveNonces].
func (w *Worker) ReserveNonces(ctx context.Context, s Submitter, r ReserveRequest) error {
	return w.Service.reserveNonces(ctx, s, r)
}

// MarkReservation records an owner's mark: see [markReservation].
func (w *Worker) MarkReservation(ctx context.Context, s Submitter, m ReservationMark) error {
	return w.Service.markReservation(ctx, s, m)
}

// ParseSignedFor parses bytes that were signed for s elsewhere: see [parseSignedFor].
func (w *Worker) ParseSignedFor(s Submitter, raw []byte) (Unsigned, Signed, error) {
	return w.Service.parseSignedFor(s, raw)
}
