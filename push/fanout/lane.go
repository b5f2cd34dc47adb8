package fanout

// Lane says how urgent a change is.
type Lane uint8

const (
	// Endpoints is the lane of changes that touch endpoints alone.
	Endpoints Lane = iota
	// Answers is the lane of answers to subscriptions, and of what follows an ACK.
	Answers
	// Config is the lane of everything else. What of it is new to a stream goes out progressively, see rollout.
	Config
	// NumLanes is how many there are; not a lane.
	NumLanes
)
