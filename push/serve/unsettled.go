package serve

import (
	"slices"
	"time"
)

// Unsettled is a set of streams whose clients were not up to date at a given time. The method Server.Unsettled returns
// it. A client is up to date if it has acknowledged or refused the newest state of its view (its configuration).
// Unsettled is not safe for concurrent use.
type Unsettled struct {
	at      int64 // the time, in Unix nanoseconds
	streams []*stream
}

// Unsettled returns the streams whose clients are not up to date with the state of their views at the time now. A
// client that has never been up to date counts as not up to date until Config.ResumeTime has passed since its first
// request for one of Envoy's types. Streams that join after the call are not in the result. The result is never nil.
func (s *Server) Unsettled(now time.Time) *Unsettled {
	u := &Unsettled{at: now.UnixNano(), streams: s.all()}
	u.Left()
	return u
}

// Left returns how many of the streams are still not up to date with the state at the time of Server.Unsettled. Streams
// that have ended do not count. A client that has refused a part of the state counts as up to date. Left looks only at
// the streams that the previous call counted.
func (u *Unsettled) Left() int {
	u.streams = slices.DeleteFunc(u.streams, func(st *stream) bool {
		moved := st.movedAt.Load() // 0 while the client is up to date
		return (moved == 0 || moved > u.at) && st.may.Load() != anyPlan || st.ended()
	})
	return len(u.streams)
}
