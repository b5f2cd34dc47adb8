package serve

import (
	"errors"
	"math/rand/v2"
	"time"
)

// errSentAway is the reason with which SendAway closes a stream. A stream that ends for this reason is not logged as a
// failure.
var errSentAway = errors.New("this replica sends the stream to another one")

// Subscribed returns two numbers. The first is the number of joined streams. The second is the number of these streams
// that have subscribed to the agent type typeURL and have not ended. For an unknown type, the second number is 0.
func (s *Server) Subscribed(typeURL string) (streams, subscribed int) {
	all := s.all()
	if i, is := s.agentTypes[typeURL]; is {
		for _, st := range all {
			if st.listens(i) {
				subscribed++
			}
		}
	}
	return len(all), subscribed
}

// SendAway closes up to n streams, chosen at random, and returns the number of closed streams. If n is 0 or less, it
// closes no stream. Streams without a subscription to the agent type with the URL agentType are closed first. Streams
// with such a subscription are closed only if the argument all is true. For an unknown type, no stream has a
// subscription. The client of a closed stream sees the end of its connection. Without Listen, the stream ends only
// after the client's next request. The caller must ensure that such clients reconnect to another replica.
func (s *Server) SendAway(n int, agentType string, all bool) int {
	if n <= 0 {
		return 0
	}
	streams := s.all()
	rand.Shuffle(len(streams), func(i, j int) { streams[i], streams[j] = streams[j], streams[i] })
	i, is := s.agentTypes[agentType]
	closed := 0
	for _, others := range []bool{false, true} {
		for _, st := range streams {
			if closed == n || others && !all {
				return closed
			}
			if follows := is && st.listens(i); follows == others && st.kill(errSentAway) {
				closed++
			}
		}
	}
	return closed
}

// Lag returns the longest time for which a stream has waited for a turn at the time now, or 0 if no stream waits. A
// wait for a turn of a rollout counts too. Streams on which a goroutine sends do not count, because their clients may
// be slow to read.
func (s *Server) Lag(now time.Time) (longest time.Duration) {
	for _, st := range s.all() {
		for l := range st.markedAt {
			if at := st.markedAt[l].Load(); at != 0 && !st.sending() {
				longest = max(longest, now.Sub(time.Unix(0, at)))
			}
		}
	}
	return longest
}
