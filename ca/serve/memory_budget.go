package serve

// memoryBudget bounds the bytes of waiting requests, and keeps a part free for newcomers. A request fits if its
// identity, including the request, then uses no more bytes than remain free. So a single identity gets half of the
// budget at most. Each of n identities gets 1/(n+1), and a newcomer finds as much free. Within an identity the same
// rule holds for credentials, so a single credential gets a quarter of the budget at most.
type memoryBudget struct {
	size, used int
	bytes      map[holder]int // by identity (without credential), and by credential
}

func newMemoryBudget(size int) memoryBudget { return memoryBudget{size: size, bytes: map[holder]int{}} }

// fits reports whether t fits the budget now.
func (r *memoryBudget) fits(t *ticket) bool {
	return fits(t, r.size-r.used, r.bytes[t.whole()], r.bytes[t.holder])
}

// fits reports whether t fits, given the free bytes and the bytes in use by its identity and by its credential.
func fits(t *ticket, free, identity, credential int) bool {
	if t.holder == t.whole() {
		return identity+t.bytes <= free-t.bytes
	}
	left := (free - identity) / 2 // for the identity
	return t.bytes <= left && credential+t.bytes <= left-t.bytes
}

// without reports whether t would fit if all tickets of a queue were removed.
func (r *memoryBudget) without(l *fairQueue, t *ticket) bool {
	identity, credential := r.bytes[t.whole()], r.bytes[t.holder]
	p, o := l.find(t.holder)
	if p != nil {
		identity -= p.bytes
	}
	if o != nil {
		credential -= o.bytes
	}
	return fits(t, r.size-(r.used-l.bytes), identity, credential)
}

func (r *memoryBudget) take(t *ticket) { r.add(t, t.bytes) }

func (r *memoryBudget) give(t *ticket) { r.add(t, -t.bytes) }

func (r *memoryBudget) add(t *ticket, bytes int) {
	r.used += bytes
	whole := t.whole()
	r.bytes[whole] += bytes
	if t.holder != whole {
		r.bytes[t.holder] += bytes
	}
	for _, h := range []holder{whole, t.holder} {
		if r.bytes[h] == 0 {
			delete(r.bytes, h)
		}
	}
}
