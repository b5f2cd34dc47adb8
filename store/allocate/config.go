package allocate

import (
	"log/slog"
	"net/netip"
	"time"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// Config configures a Leader. All fields without a stated default are required.
type Config struct {
	Ranges []netip.Prefix // at most one for each address family
	Grace  time.Duration  // time for which the addresses of a removed host are not assigned to another host
	// Sources are the sources of the config cluster's ServiceEntries. No address is assigned before all are synced.
	Sources []origin.Origin
	// Lock is istiod's lock; nil: there is no cluster, so no other party assigns addresses. The caller calls Lock.Run.
	Lock *Lock
	// Promoted reports whether this revision of the control plane assigns addresses. Otherwise the Leader uses the
	// addresses that another revision writes into the status. The caller calls Observe(nil) when the result changes.
	// nil: always true.
	Promoted func() bool
	// Emit receives events for the ingester: Put and Delete for the objects with addresses, and Synced once in each
	// term.
	Emit func([]object.Event)
	// Want is called with the target status of the cluster's ServiceEntries whose hosts need addresses. The map must
	// not be changed. It is empty while another party assigns, or may assign, addresses. nil: not called.
	Want func(map[Name]Hosts)
	Log  *slog.Logger
}
