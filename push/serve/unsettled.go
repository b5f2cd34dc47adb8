package serve

import (
	"slices"
	"time"
)

// Unsettled are the streams whose clients had not acknowledged the state of their views at one time.
type Unsettled struct {
	at      int64 // unix nanoseconds
	streams []*stream
}

// Unsettled returns the streams whose clients are not up to date with the present state of their views, or have never
// been up to date. Streams that join later do not count. The cost is one check of each stream.
func (s *Server) Unsettled(now time.Time) *Unsettled {
	u := &Unsettled{at: now.UnixNano(), streams: s.all()}
	u.Left()
	return u
}

// Left returns the number of these streams that are still not up to date. A client that refused something counts as up
// to date. The cost grows with the number that was left at the last call.
func (u *Unsettled) Left() int {
	u.streams = slices.DeleteFunc(u.streams, func(st *stream) bool {
		moved := st.movedAt.Load() // 0 whenever the client is up to date
		return (moved == 0 || moved > u.at) && st.may.Load() != anyPlan || st.ended()
	})
	return len(u.streams)
}
