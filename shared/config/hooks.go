package config

import "time"

// Hooks configures the reservation of nonces without an intent.
type Hooks struct {
	// Enabled is true if Allocate, MarkUsed and MarkRecyclable may be called.
	Enabled bool
	// ReservationTimeout is how long a nonce stays reserved for its owner without a mark.
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
