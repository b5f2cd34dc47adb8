package status

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"navarch.io/navarch/cmd/internal/sources"
)

// turns limits the number of concurrent requests of one sort. At the limit, the oldest request of the source with the
// most requests ends in favour of a source with fewer; a source that itself has the most is refused.
type turns struct{ ledger *sources.Ledger }

func newTurns(most int) *turns {
	return &turns{sources.NewLedger(sources.Limits{Total: most, PerSource: most})}
}

// turn is the place of one request.
type turn struct {
	w      *http.ResponseController
	cancel context.CancelFunc
}

// Busy implements sources.Holder: a turn ends only in favour of another source.
func (turn) Busy(time.Time) (busy, younger bool) { return true, false }

// take adds a request. ctx ends when another source gets the place; the caller calls done at the end. ok is false when
// the request is refused.
func (t *turns) take(w http.ResponseWriter, r *http.Request) (ctx context.Context, done func(), ok bool) {
	ctx, cancel := context.WithCancel(r.Context())
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	e := t.ledger.Entry(turn{http.NewResponseController(w), cancel}, net.TCPAddrFromAddrPort(at))
	lost, ok := t.ledger.Enter(e)
	if lost, is := lost.(turn); is {
		lost.cancel()
		_ = lost.w.SetWriteDeadline(time.Now()) // the handler may be blocked by a client that does not read
	}
	return ctx, func() { t.ledger.Leave(e); cancel() }, ok
}
