package serve

import (
	"slices"
	"time"
)

// Unsettled are streams whose clients have not acknowledged what their views were at one time.
type Unsettled struct {
	at      int64 // unix nanoseconds
	streams []*stream
}

// Unsettled takes the streams whose clients are not up to date with what their views have moved to by now, or have joined and have not been
// up to date yet. Streams that join later do not count. It looks at each stream once.
func (s *Server) Unsettled(now time.Time) *Unsettled {
	u := &Unsettled{at: now.UnixNano(), streams: s.all()}
	u.Left()
	return u
}

// Left is how many are still not. A client that refused something has answered. It costs as much as there were left.
func (u *Unsettled) Left() int {
	u.streams = slices.DeleteFunc(u.streams, func(st *stream) bool {
		moved := st.movedAt.Load() // 0 whenever the client is up to date
		return (moved == 0 || moved > u.at) && st.may.Load() != anyPlan || st.ended()
	})
	return len(u.streams)
}
