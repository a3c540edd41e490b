package book

// past is the remembered entries, oldest first. Entries are pushed at one end, popped at the other,
// and never changed. A copy stays as it was, while another goroutine pushes and pops.
type past struct {
	chunks []*[chunkSize]Entry
	head   int // popped entries of the first chunk
	tail   int // pushed entries of the last chunk
}

const chunkSize = 1024

func (p *past) push(e Entry) *Entry {
	if len(p.chunks) == 0 || p.tail == chunkSize {
		p.chunks = append(p.chunks, new([chunkSize]Entry))
		p.tail = 0
	}
	at := &p.chunks[len(p.chunks)-1][p.tail]
	*at = e
	p.tail++
	return at
}

// front returns the oldest entry, or nil.
func (p *past) front() *Entry {
	if len(p.chunks) == 0 || len(p.chunks) == 1 && p.head == p.tail {
		return nil
	}
	return &p.chunks[0][p.head]
}

func (p *past) pop() {
	p.head++
	if p.head == chunkSize {
		p.chunks, p.head = p.chunks[1:], 0
	}
}

// each visits the entries, oldest first.
func (p *past) each(visit func(*Entry) error) error {
	for i, chunk := range p.chunks {
		from, to := 0, chunkSize
		if i == 0 {
			from = p.head
		}
		if i == len(p.chunks)-1 {
			to = p.tail
		}
		for j := from; j < to; j++ {
			if err := visit(&chunk[j]); err != nil {
				return err
			}
		}
	}
	return nil
}
