package moves

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/store/pgcluster"
)

// replicate starts a streaming replica of the deployment's cluster.
func (d *deployment) replicate() *pgcluster.Cluster {
	d.t.Helper()
	replica := must(d.cluster.Replica(d.ctx))(d.t)
	d.ends("stop the replica", replica.Stop)
	return replica
}

// moveTo leads the functions, and the test, to another cluster.
func (d *deployment) moveTo(c *pgcluster.Cluster) {
	d.t.Helper()
	u := must(url.Parse(d.Database))(d.t)
	d.cluster = c
	d.use(c.URL(strings.TrimPrefix(u.Path, "/")))
	d.Proxy.Retarget(c.Addr())
}

// identity returns the values by which servers are distinguished.
func (d *deployment) identity() string {
	d.t.Helper()
	return value[string](d, `select system_identifier::text || ' ' || current_timeline() from pg_control_system()`)
}

// The primary dies under load, and its replica is promoted without notice. The replica can lack the
// last commits. It is not used until accepted, with a mark and without one.
func TestAnUnplannedPromotionIsNoticed(t *testing.T) {
	t.Parallel()
	for _, marked := range []bool{true, false} {
		parallel(t, fmt.Sprintf("mark %t", marked), func(t *testing.T) {
			d := deploy(t, marked, stack.Options{WireProxy: true})
			replica := d.replicate()
			l := d.run()
			l.more(60)
			before := d.identity()
			check(t, d.cluster.Halt(d.ctx, true))
			check(t, replica.Promote(d.ctx))
			d.moveTo(replica)
			d.noticed(l)
			l.stop()
			if after := d.identity(); after == before {
				t.Errorf("system and timeline: got %s, want another timeline", after)
			}
			d.notCheap()
			d.accept()
			d.notCheap()
			d.once()
		})
	}
}
