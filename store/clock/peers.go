package clock

import "time"

// Word is a response to a request for the time of a process, or of the API server.
type Word struct {
	Process string    `json:"process,omitempty"` // unique in the mesh; empty: Heard ignores the Word
	Now     time.Time `json:"now"`               // the sender's time
}

// heardFor is the time for which a response of a peer (another process) counts. By default peers are asked at least
// once a minute.
const heardFor = 3 * time.Minute

// Word returns this process's response to a request for its time.
func (c *Clock) Word() Word { return Word{c.cfg.Name, c.wall()} }

// Heard stores the response w to a request that took roundTrip. The response is assumed to state the time in the middle
// of the request, so its error is at most half the round trip. A response of this process, or without a name, is
// ignored. For three minutes a response has precedence over the peer's time in etcd, which may be late because etcd is
// slow.
func (c *Clock) Heard(w Word, roundTrip time.Duration) {
	if w.Process == "" || w.Process == c.cfg.Name {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ran := time.Since(c.start)
	for name, r := range c.heard {
		if ran-r.at > heardFor {
			delete(c.heard, name)
		}
	}
	c.heard[w.Process] = reading{said: w.Now, at: ran - roundTrip/2}
	if c.done {
		c.logOffset(ran)
	}
}

// readings returns one reading of each other clock, by name. It is the reading from a response if that still counts. If
// not, it is the reading from etcd.
func (c *Clock) readings(ran time.Duration) map[string]reading {
	all := make(map[string]reading, len(c.others)+len(c.heard))
	for name, r := range c.others {
		all[name] = r
	}
	for name, r := range c.heard {
		if ran-r.at <= heardFor {
			all[name] = r
		}
	}
	return all
}
