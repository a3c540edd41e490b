package config

import "time"

// Hooks is whether nonces may be asked for by themselves.
type Hooks struct {
	// Enabled says that Allocate, MarkUsed and MarkRecyclable may be called.
	Enabled bool
	// ReservationTimeout is how long a nonce stays its owner's without a mark.
	ReservationTimeout time.Duration
}

func (h *Hooks) settings() []setting {
	return []setting{
		{name: "hooks.enabled", def: "false",
			meaning: "whether Go code may reserve nonces and sign for them itself, by `Allocate`, `MarkUsed` and `MarkRecyclable`: for migration and operations",
			field:   boolean(&h.Enabled)},
		{name: "hooks.reservationTimeout", def: "60s",
			meaning: "how long a reserved nonce waits for its owner's mark, and everything behind it; then a placeholder consumes it",
			field:   duration(&h.ReservationTimeout, time.Second, 24*time.Hour)},
	}
}
