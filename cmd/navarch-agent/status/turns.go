package status

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"navarch.io/navarch/cmd/internal/sources"
)

// turns limits the number of concurrent requests of one kind (metrics or probes). A source is a client address: an IPv4
// address or an IPv6 /64. At the limit, a new request displaces the oldest request of the source with the most
// requests. If no source has more requests than the source of the new request, the new request is refused.
type turns struct{ ledger *sources.Ledger }

func newTurns(most int) *turns {
	return &turns{sources.NewLedger(sources.Limits{Total: most, PerSource: most})}
}

// turn represents one running request.
type turn struct {
	w      *http.ResponseController
	cancel context.CancelFunc
}

// Busy implements sources.Holder. It always returns (true, false). A request is therefore never displaced by a request
// of its own source.
func (turn) Busy(time.Time) (busy, younger bool) { return true, false }

// take adds a request to the ledger (the list of running requests). The returned context ends with the request's
// context, or when another request displaces this request. If the result ok is false, the request is refused. The
// caller must call done when the request ends, also if it is refused.
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
