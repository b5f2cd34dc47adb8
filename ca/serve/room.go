package serve

// room is memory for requests that wait, shared so that nobody can take the last of it: an identity may hold as much as it would leave
// free. One that fills the queue gets half of it, each of n that do a part in n+1, and whoever comes then finds a part of that
// size free, whatever these do (issue 12, item 10). By the same rule a credential may hold as much as it would leave to its identity: one alone
// gets a quarter of the queue.
type room struct {
	size, used int
	of         map[holder]int // by identity, without a credential, and by credential
}

func newRoom(size int) room { return room{size: size, of: map[holder]int{}} }

// fits says whether t may come in as things are.
func (r *room) fits(t *ticket) bool {
	return fits(t, r.size-r.used, r.of[t.whole()], r.of[t.holder])
}

// fits says whether t may come in where so much is free, and its identity and its credential have so much.
func fits(t *ticket, free, identity, credential int) bool {
	if t.holder == t.whole() {
		return identity+t.bytes <= free-t.bytes
	}
	left := (free - identity) / 2 // to its identity
	return t.bytes <= left && credential+t.bytes <= left-t.bytes
}

// without says whether t could come in if none of a line were there.
func (r *room) without(l *line, t *ticket) bool {
	identity, credential := r.of[t.whole()], r.of[t.holder]
	p, o := l.find(t.holder)
	if p != nil {
		identity -= p.bytes
	}
	if o != nil {
		credential -= o.bytes
	}
	return fits(t, r.size-(r.used-l.bytes), identity, credential)
}

func (r *room) take(t *ticket) { r.add(t, t.bytes) }

func (r *room) give(t *ticket) { r.add(t, -t.bytes) }

func (r *room) add(t *ticket, bytes int) {
	r.used += bytes
	whole := t.whole()
	r.of[whole] += bytes
	if t.holder != whole {
		r.of[t.holder] += bytes
	}
	for _, h := range []holder{whole, t.holder} {
		if r.of[h] == 0 {
			delete(r.of, h)
		}
	}
}
