package serve

import (
	"errors"
	"math/rand/v2"
	"time"
)

// errSentAway is why a stream ends that SendAway closed; nothing is wrong with it.
var errSentAway = errors.New("this replica sends the stream to another one")

// Subscribed is how many streams there are, and how many of them subscribed to an agent resource.
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

// SendAway closes n streams, chosen at random, and says how many those were: they come back elsewhere, if somebody has seen to
// that. Those that did not subscribe to the agent resource go first; the others only where all says so. Clients see a connection that
// ends.
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

// Lag is for how long the stream has waited that waits longest for its turn to be sent something. A client that does not
// read, or does not acknowledge, is not waited for.
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
