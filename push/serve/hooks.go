package serve

import (
	"time"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// Hooks are functions that record metrics. Any of them may be nil. They are called from many goroutines, which wait for
// them, and should return quickly. Sent, Pushed, Queued and Wrote are called within a stream's turn (fanout.Loop.Join).
// Converged is called within a turn too, or by the goroutine that reads the stream. Streams, Acked, Refused, Expired
// and Left are called by the goroutine that reads the stream. Timeout and Bounded are called by any goroutine. Sent,
// Pushed, Acked, Refused and Expired are not called for agent types (AgentType). The comments state the names of the
// metrics after a colon.
type Hooks struct {
	Streams func(change int)                                // a stream joined (+1) or ended (-1): pilot_xds, navarch_proxies
	Sent    func(t xds.Type, resources, removed, bytes int) // a response was sent: pilot_xds_pushes; bytes on the wire
	Pushed  func(t xds.Type, took time.Duration)            // time to compute and send one response: pilot_xds_push_time
	Queued  func(wait time.Duration)                        // time from a mark to the turn: pilot_proxy_queue_time
	Wrote   func(took time.Duration)                        // time in which the transport accepted one response: pilot_xds_send_time
	// Acked receives the time from a response to its ACK. If several responses of the type are in flight, the time
	// begins at the previous ACK or NACK. The parameter node is the node ID. The parameter rev is the store's revision
	// from which the response was made.
	Acked     func(t xds.Type, node string, rev int64, took time.Duration)
	Converged func(took time.Duration) // time from a change of the view to the last ACK: pilot_proxy_convergence_time
	Refused   func(r Refusal)          // a NACK: pilot_xds_*_reject, pilot_total_xds_rejects
	Expired   func(t xds.Type)         // an unknown nonce: pilot_xds_expired_nonce
	Timeout   func(write bool)         // closed stream: no read (true, pilot_xds_write_timeout) or no ACK in time
	Bounded   func(what string, n int) // a caller reached a bound n times; the parameter what is a constant Bound*
	Left      func(Client, Proxy)      // a joined stream ended
}

// Refusal is one NACK of a resource. A NACK that names several resources makes several Refusals.
type Refusal struct {
	Node      string // node ID
	Namespace string // namespace of the proxy
	Identity  string // SPIFFE ID of the client; empty on plain text
	View      string // Proxy.ID
	Type      xds.Type
	Name      string // the refused resource; empty while it is unknown (the server then sends halves of the response again)
	Version   string // the refused version, which is not sent again on the stream; empty if Name is empty
	Envoy     string // version of the client's Envoy
	Good      string // the version that stays in effect; empty if the client has no version
	Text      string // Envoy's message, shortened
	// Objects are the objects from which the resource was made, the likeliest cause first (Config.Blame). It is nil if
	// they are unknown.
	Objects  []model.Place
	Revision int64 // the store's revision from which the response was made
	// Since is the store's revision since which the client's set contains the version. At first it equals Revision. If
	// the version disappears from the set and returns, Since is the revision of its return. In the argument of
	// Hooks.Refused, Since is 0.
	Since int64
	At    time.Time // time of the NACK

	absent bool // the client's set does not contain the version
}

// fill replaces nil hooks by functions without effect.
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
