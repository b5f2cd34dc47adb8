package preauth

import (
	"container/list"
	"net/netip"
	"runtime"
	"sync"
)

// line gives turns to steps of TLS handshakes: what is computed between one message of the client and the next. Sources have
// theirs one after the other, and handshakes of one source the one that began before. Nobody has a turn while it waits for its
// client.
type line struct {
	mu      sync.Mutex // a leaf
	free    int
	sources map[netip.Prefix]*list.Element // in order
	order   list.List                      // of *sourceQueue, that whose turn is next first; none is empty
}

// sourceQueue is what waits of one source.
type sourceQueue struct {
	source netip.Prefix
	wait   list.List // of chan struct{}, closed when its turn has come
}

// newLine lets so many steps be computed at once; 0: one for each processor.
func newLine(atOnce int) *line {
	if atOnce == 0 {
		atOnce = runtime.GOMAXPROCS(0)
	}
	return &line{free: atOnce, sources: map[netip.Prefix]*list.Element{}}
}

// enter waits for a turn, until gone is closed: false. begun says that the handshake has had one before.
func (l *line) enter(source netip.Prefix, begun bool, gone <-chan struct{}) bool {
	l.mu.Lock()
	if l.free > 0 {
		l.free--
		l.mu.Unlock()
		return true
	}
	at := l.sources[source]
	if at == nil {
		at = l.order.PushBack(&sourceQueue{source: source})
		l.sources[source] = at
	}
	turn, own := make(chan struct{}), at.Value.(*sourceQueue)
	var place *list.Element
	if begun {
		place = own.wait.PushFront(turn)
	} else {
		place = own.wait.PushBack(turn)
	}
	l.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-gone:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // it came first
		l.next()
	default:
		own.wait.Remove(place)
		l.tidy(own)
	}
	return false
}

// leave ends a turn.
func (l *line) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next()
}

// next gives a turn on. Called with the lock held.
func (l *line) next() {
	front := l.order.Front()
	if front == nil {
		l.free++
		return
	}
	own := front.Value.(*sourceQueue)
	close(own.wait.Remove(own.wait.Front()).(chan struct{}))
	l.order.MoveToBack(front)
	l.tidy(own)
}

// tidy forgets a source of which nobody waits. Called with the lock held.
func (l *line) tidy(own *sourceQueue) {
	if own.wait.Len() == 0 {
		l.order.Remove(l.sources[own.source])
		delete(l.sources, own.source)
	}
}
