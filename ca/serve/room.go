package serve

// room is memory for requests that wait, shared so that nobody can take the last of it: an identity may hold as much as it would leave
// free. One that fills the queue gets half of it, each of n that do a part in n+1, and whoever comes then finds a part of that
// size free, whatever these do (issue 12, item 10).
type room struct {
	size, used int
	of         map[string]int // by identity
}

func newRoom(size int) room { return room{size: size, of: map[string]int{}} }

// fits says whether t may come in as things are.
func (r *room) fits(t *ticket) bool { return r.of[t.identity]+t.bytes <= r.size-r.used-t.bytes }

// without says whether t could come in if none of a line were there.
func (r *room) without(l *line, t *ticket) bool {
	own := r.of[t.identity]
	if in := l.classes[t.identity]; in != nil {
		own -= in.bytes
	}
	return own+t.bytes <= r.size-(r.used-l.bytes)-t.bytes
}

func (r *room) take(t *ticket) {
	r.used += t.bytes
	r.of[t.identity] += t.bytes
}

func (r *room) give(t *ticket) {
	r.used -= t.bytes
	if r.of[t.identity] -= t.bytes; r.of[t.identity] == 0 {
		delete(r.of, t.identity)
	}
}
