package serve

import "container/list"

// fairQueue contains tickets (waiting requests). First certificates and renewals have separate fairQueues. pop
// alternates between identities, and between the credentials of an identity. The tickets of one credential leave in the
// order in which they were pushed.
type fairQueue struct {
	n, bytes   int // number of tickets, and sum of their bytes
	identities rotation[*identityQueue]
}

// identityQueue contains the tickets of one identity.
type identityQueue struct {
	n, bytes    int
	credentials rotation[*credentialQueue]
}

// credentialQueue contains the tickets of one credential.
type credentialQueue struct {
	bytes   int
	tickets *list.List
}

func newFairQueue() fairQueue { return fairQueue{identities: newRotation[*identityQueue]()} }

// find returns the queues of the identity and of the credential in h. A result is nil if no ticket of the identity or
// the credential is queued.
func (l *fairQueue) find(h holder) (p *identityQueue, o *credentialQueue) {
	if p = l.identities.find(h.identity); p != nil {
		o = p.credentials.find(h.credential)
	}
	return p, o
}

func (l *fairQueue) push(t *ticket) {
	p, o := l.find(t.holder)
	if p == nil {
		p = &identityQueue{credentials: newRotation[*credentialQueue]()}
		l.identities.join(t.identity, p)
	}
	if o == nil {
		o = &credentialQueue{tickets: list.New()}
		p.credentials.join(t.credential, o)
	}
	t.element, t.state = o.tickets.PushBack(t), waiting
	l.n, p.n = l.n+1, p.n+1
	l.bytes, p.bytes, o.bytes = l.bytes+t.bytes, p.bytes+t.bytes, o.bytes+t.bytes
}

func (l *fairQueue) pop() *ticket {
	if l.n == 0 {
		return nil
	}
	t := l.identities.next().credentials.next().tickets.Front().Value.(*ticket)
	l.remove(t)
	return t
}

func (l *fairQueue) remove(t *ticket) {
	p, o := l.find(t.holder)
	o.tickets.Remove(t.element)
	t.element, t.state = nil, outside
	l.n, p.n = l.n-1, p.n-1
	l.bytes, p.bytes, o.bytes = l.bytes-t.bytes, p.bytes-t.bytes, o.bytes-t.bytes
	if o.tickets.Len() == 0 {
		p.credentials.leave(t.credential)
	}
	if p.n == 0 {
		l.identities.leave(t.identity)
	}
}

// last selects the identity whose turn comes last. Among this identity's credentials, it selects the one whose turn
// comes last. It returns the newest ticket of this credential, or nil if the queue is empty.
func (l *fairQueue) last() *ticket {
	if l.n == 0 {
		return nil
	}
	return l.identities.last().credentials.last().tickets.Back().Value.(*ticket)
}

// ahead assumes that a ticket of h (identity and credential) is pushed now. It returns an upper bound for the number of
// tickets that would leave before this ticket.
func (l *fairQueue) ahead(h holder) int {
	p, o := l.find(h)
	own := 0 // upper bound for the tickets of the same identity
	if p != nil {
		own = p.n
	}
	if p != nil && o == nil {
		own = min(own, p.credentials.len())
	} else if o != nil {
		own = min(own, (o.tickets.Len()+1)*p.credentials.len())
	}
	return min(l.n, (own+1)*l.identities.len())
}

// rotation is a set of named members that take turns.
type rotation[T any] struct {
	turns *list.List // elements are seat[T]; the front has the next turn
	seats map[string]*list.Element
}

type seat[T any] struct {
	name string
	of   T
}

func newRotation[T any]() rotation[T] {
	return rotation[T]{turns: list.New(), seats: map[string]*list.Element{}}
}

func (r rotation[T]) len() int { return len(r.seats) }

// find returns the member with a name, or the zero value of T if no member has this name.
func (r rotation[T]) find(name string) (of T) {
	if turn := r.seats[name]; turn != nil {
		of = turn.Value.(seat[T]).of
	}
	return of
}

// join adds a member, which gets the last turn.
func (r rotation[T]) join(name string, of T) { r.seats[name] = r.turns.PushBack(seat[T]{name, of}) }

func (r rotation[T]) leave(name string) {
	r.turns.Remove(r.seats[name])
	delete(r.seats, name)
}

// next returns the first member in the order of turns, and moves it to the end. The rotation must not be empty.
func (r rotation[T]) next() T {
	turn := r.turns.Front()
	r.turns.MoveToBack(turn)
	return turn.Value.(seat[T]).of
}

// last returns the last member in the order of turns. The rotation must not be empty.
func (r rotation[T]) last() T { return r.turns.Back().Value.(seat[T]).of }
