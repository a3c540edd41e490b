package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/emulator/stack"
	"github.com/fencepost/fencepost/shared/chain/chaintest"
	"github.com/fencepost/fencepost/shared/txmanager"
)

// orphaned returns a proxy for the node that changes the parent of each block.
func orphaned(t *testing.T, node string) (address string, spoiled *atomic.Int64) {
	t.Helper()
	spoiled = new(atomic.Int64)
	parent := regexp.MustCompile(`"parentHash":"0x[0-9a-f]{64}"`)
	proxy := chaintest.NewProxy(t, node)
	proxy.Set(chaintest.Fault{Answer: func(_ chaintest.Call, own json.RawMessage) (other map[string]any) {
		text := parent.ReplaceAll(own, fmt.Appendf(nil, `"parentHash":"0x%064x"`, 1))
		if bytes.Equal(text, own) || json.Unmarshal(text, &other) != nil {
			return nil
		}
		spoiled.Add(1)
		return other
	}})
	return proxy.URL, spoiled
}

// Blocks with a wrong parent prove nothing. A process whose node returns such blocks logs that, and
// processes with a better node carry everything to its end.
func TestHeadersThatDoNotLinkAreLogged(t *testing.T) {
	t.Parallel()
	b := setup(t, stack.Options{Settings: quick, Processes: 1})
	node, spoiled := orphaned(t, b.Chain.URL())
	must(b.StartProcess(b.ctx, map[string]string{"FENCEPOST_RPC_URLS": node}))(t)
	s, n := b.Submitters()[0], 0
	err := poll(b.ctx, func() bool {
		if b.count(`select count(*) from managed_tx where state not in ('CONFIRMED', 'FAILED')`) == 0 {
			b.postUntilAnswered(t, transfer(s, fmt.Sprint("r-", n)))
			n++
		}
		return b.Log.Has("the node's headers do not link: they cannot prove finality")
	})
	if err != nil {
		t.Errorf("headers without parents, %d answers of them: never told: %v", spoiled.Load(), err)
	}
	b.ends(t, map[txmanager.Submitter]int{s: n})
}
