package serve

// memoryBudget bounds the bytes of waiting requests, and always keeps bytes free for further identities. A request fits
// if its identity, with this request, uses at most as many bytes as stay free. So a single identity gets at most half
// of the budget. Each of n busy identities gets 1/(n+1) of the budget in the long run, and 1/(n+1) stays free. The same
// rule divides the bytes of an identity among its credentials. So a single credential gets at most a quarter of the
// budget.
type memoryBudget struct {
	size, used int
	bytes      map[holder]int // used bytes of each identity (holder.whole), and of each credential
}

func newMemoryBudget(size int) memoryBudget { return memoryBudget{size: size, bytes: map[holder]int{}} }

// fits reports whether the request of t fits now.
func (r *memoryBudget) fits(t *ticket) bool {
	return fits(t, r.size-r.used, r.bytes[t.whole()], r.bytes[t.holder])
}

// fits reports whether the request of t fits. The argument free is the number of free bytes. The arguments identity and
// credential are the bytes that the identity and the credential of t use.
func fits(t *ticket, free, identity, credential int) bool {
	if t.holder == t.whole() {
		return identity+t.bytes <= free-t.bytes
	}
	left := (free - identity) / 2 // bytes that the identity may still add
	return t.bytes <= left && credential+t.bytes <= left-t.bytes
}

// without reports whether the request of t would fit if all tickets in l were removed.
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
