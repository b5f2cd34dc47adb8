package serve

import (
	"time"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Hooks are functions for metrics. Any may be nil. They are called from many goroutines. Sent, Pushed, Queued, Wrote
// and Converged are called within the stream's turn (fanout.Loop.Join); the goroutine that reads the stream, or checks
// deadlines, waits for the others.
type Hooks struct {
	Streams func(change int)                                // +1 and -1: pilot_xds, navarch_proxies
	Sent    func(t xds.Type, resources, removed, bytes int) // a response: pilot_xds_pushes, bytes shared
	Pushed  func(t xds.Type, took time.Duration)            // time to compute and hand over one response: pilot_xds_push_time
	Queued  func(wait time.Duration)                        // time from a mark to the turn: pilot_proxy_queue_time
	Wrote   func(took time.Duration)                        // time in which the transport accepted one response: pilot_xds_send_time
	// Acked has the time from sending to the ACK. rev is the store's revision, node the client's id.
	Acked     func(t xds.Type, node string, rev int64, took time.Duration)
	Converged func(took time.Duration) // from a moved view to the last ACK: pilot_proxy_convergence_time
	Refused   func(r Refusal)          // a NACK: pilot_xds_*_reject, pilot_total_xds_rejects
	Expired   func(t xds.Type)         // a stale nonce: pilot_xds_expired_nonce
	Timeout   func(write bool)         // a stream was closed: not written in time (pilot_xds_write_timeout), or not acknowledged
	Bounded   func(what string, n int) // an identity reached a bound (BoundStreams ...), n times
	Left      func(Client, Proxy)      // a stream has ended that had joined
}

// Refusal is one NACK.
type Refusal struct {
	Node      string
	Namespace string // of the view
	Identity  string
	View      string // Proxy.ID
	Type      xds.Type
	Name      string // the refused resource; empty while it is still searched for by halves
	Version   string // the refused version, which is not sent again
	Envoy     string // version of the client's Envoy
	Good      string // the version that stays in effect; empty: there is no such version
	Text      string // Envoy's message, cut
	// Objects are the objects from which the resource was made, the likeliest cause first (Config.Blame).
	Objects  []model.Place
	Revision int64 // of the store
	At       time.Time
}

// fill replaces missing hooks by functions without effect.
func (h *Hooks) fill() {
	if h.Streams == nil {
		h.Streams = func(int) {}
	}
	if h.Sent == nil {
		h.Sent = func(xds.Type, int, int, int) {}
	}
	if h.Pushed == nil {
		h.Pushed = func(xds.Type, time.Duration) {}
	}
	if h.Acked == nil {
		h.Acked = func(xds.Type, string, int64, time.Duration) {}
	}
	if h.Queued == nil {
		h.Queued = func(time.Duration) {}
	}
	if h.Wrote == nil {
		h.Wrote = func(time.Duration) {}
	}
	if h.Converged == nil {
		h.Converged = func(time.Duration) {}
	}
	if h.Refused == nil {
		h.Refused = func(Refusal) {}
	}
	if h.Expired == nil {
		h.Expired = func(xds.Type) {}
	}
	if h.Timeout == nil {
		h.Timeout = func(bool) {}
	}
	if h.Bounded == nil {
		h.Bounded = func(string, int) {}
	}
	if h.Left == nil {
		h.Left = func(Client, Proxy) {}
	}
}
