// Package fanout decides which stream is sent to next: latest wins, two lanes, fair between namespaces, under a budget
// of streams and bytes in flight.
//
// Owns: the queue of streams, the budgets, what is in flight.  Reads: nothing.  Never: a socket, a manifest.
package fanout

// Lane says how urgent a change is.
type Lane uint8

const (
	// Endpoints is the lane of changes that touch endpoints alone, and of answers to subscriptions.
	Endpoints Lane = iota
	// Config is the lane of everything else.
	Config
	// NumLanes is how many there are; not a lane.
	NumLanes
)
