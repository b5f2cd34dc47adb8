package serve

import (
	"slices"
	"time"
)

// Unsettled has the streams whose clients had not acknowledged the state of their views at one time, or had never been
// up to date (Server.Unsettled). It is not safe for concurrent use.
type Unsettled struct {
	at      int64 // the time, in Unix nanoseconds
	streams []*stream
}

// Unsettled returns the streams whose clients are not up to date with the state of their views at the time now. It
// includes streams whose clients have never been up to date, unless Config.ResumeTime has passed since their first
// request. Streams that join later do not count. The result is never nil.
func (s *Server) Unsettled(now time.Time) *Unsettled {
	u := &Unsettled{at: now.UnixNano(), streams: s.all()}
	u.Left()
	return u
}

// Left returns how many of the streams are still not up to date with the state at the time of Server.Unsettled.
// Streams that have ended do not count. A client that has refused a part of the state counts as up to date. The cost
// grows with the result of the previous call.
func (u *Unsettled) Left() int {
	u.streams = slices.DeleteFunc(u.streams, func(st *stream) bool {
		moved := st.movedAt.Load() // 0 while the client is up to date
		return (moved == 0 || moved > u.at) && st.may.Load() != anyPlan || st.ended()
	})
	return len(u.streams)
}
