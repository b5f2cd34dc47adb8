package status

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"time"

	"navarch.io/navarch/cmd/internal/sources"
)

// turns bounds how many requests of one sort are answered at once. Where there is no room for one more, the oldest of the source that has
// most ends for a source that has fewer; whoever has most themselves are refused.
type turns struct{ ledger *sources.Ledger }

func newTurns(most int) *turns {
	return &turns{sources.NewLedger(sources.Limits{Total: most, PerSource: most})}
}

// turn is one request's.
type turn struct {
	w      *http.ResponseController
	cancel context.CancelFunc
}

// Busy implements sources.Holder: it loses its place to other sources alone.
func (turn) Busy(time.Time) (busy, younger bool) { return true, false }

// take gives a request its turn: until done is called, or ctx ends because another source has the turn now. false: there is none.
func (t *turns) take(w http.ResponseWriter, r *http.Request) (ctx context.Context, done func(), ok bool) {
	ctx, cancel := context.WithCancel(r.Context())
	at, _ := netip.ParseAddrPort(r.RemoteAddr)
	e := t.ledger.Entry(turn{http.NewResponseController(w), cancel}, net.TCPAddrFromAddrPort(at))
	lost, ok := t.ledger.Enter(e)
	if lost, is := lost.(turn); is {
		lost.cancel()
		_ = lost.w.SetWriteDeadline(time.Now()) // it may be at a client that does not read
	}
	return ctx, func() { t.ledger.Leave(e); cancel() }, ok
}
