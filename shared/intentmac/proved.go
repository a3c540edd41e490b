package intentmac

import (
	"crypto/sha256"
	"sync"
)

// provedMax bounds what [proved] remembers: 32 bytes each.
const provedMax = 10_000

// proved remembers valid MACs of one key, so that a waiting intent does not cost a call to
// Cloud KMS at every block. A valid MAC stays valid.
type proved struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]struct{}
}

func provedID(data, sum []byte) [sha256.Size]byte {
	return sha256.Sum256(encode(string(data), string(sum)))
}

func (p *proved) has(data, sum []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.all[provedID(data, sum)]
	return ok
}

func (p *proved) add(data, sum []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) >= provedMax {
		p.all = make(map[[sha256.Size]byte]struct{})
	}
	p.all[provedID(data, sum)] = struct{}{}
}
