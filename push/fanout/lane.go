package fanout

// Lane is the urgency of a change. A lower value is more urgent.
type Lane uint8

const (
	// Endpoints is the lane for most changes that concern only endpoints.
	Endpoints Lane = iota
	// Answers is the lane of responses to subscriptions, and of sends that had to wait, for example for an ACK or for a
	// credential.
	Answers
	// Config is the lane of all other changes. A new plan (the configuration of all proxies for one revision of the
	// store) is sent to a few streams first (rollout.go).
	Config
	// NumLanes is the number of lanes, not a lane.
	NumLanes
)
