package serve

import (
	"errors"
	"math/rand/v2"
	"time"
)

// errSentAway is the reason for the end of a stream that SendAway closed. It is not a failure.
var errSentAway = errors.New("this replica sends the stream to another one")

// Subscribed returns the number of streams, and the number of those that subscribed to an agent resource.
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

// SendAway closes n streams, chosen at random, and returns how many it closed. Whether they come back to another
// replica is for the caller to arrange. Streams without a subscription to the agent resource go first; the others go
// only with all. Clients see the end of their connection.
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

// Lag returns the longest time that a stream has waited for its turn to be sent to. Streams whose client does not read
// or acknowledge do not count.
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
