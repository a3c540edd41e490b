package pgcluster

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// A server with a clock library follows SetClock in both directions.
func TestSetClockMovesTheServersClock(t *testing.T) {
	t.Parallel()
	library := FindClockLibrary()
	if library == "" {
		t.Skip("libfaketime is not installed: apt-get install libfaketime")
	}
	c, err := Start(t.Context(), Options{ClockLibrary: library})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, offset := range []time.Duration{time.Hour, -time.Hour, 0} {
		if err := c.SetClock(offset); err != nil {
			t.Fatal(err)
		}
		var ahead time.Duration
		for began := time.Now(); ; {
			var now time.Time
			if err := conn.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&now); err != nil {
				t.Fatal(err)
			}
			if ahead = time.Until(now); (ahead - offset).Abs() < time.Minute {
				break
			}
			if time.Since(began) > 30*time.Second {
				t.Fatalf("clock set to %v: got %v after 30 s", offset, ahead)
			}
		}
	}
}

// A cluster without a clock library refuses SetClock.
func TestSetClockNeedsTheLibrary(t *testing.T) {
	t.Parallel()
	if err := sharedCluster(t).SetClock(time.Second); !errors.Is(err, errFixedClock) {
		t.Errorf("got %v, want %v", err, errFixedClock)
	}
}
