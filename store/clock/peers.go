package clock

import "time"

// Word is what a process says about its clock when a peer asks it.
type Word struct {
	Process string    `json:"process,omitempty"` // unique in the mesh; empty: it says nothing
	Now     time.Time `json:"now"`
}

// heardFor is for how long a peer's answer counts: peers are asked every minute.
const heardFor = 3 * time.Minute

// Word is this process's.
func (c *Clock) Word() Word { return Word{c.cfg.Name, c.wall()} }

// Heard takes a peer's answer, which came with a round trip of so long: what the peer said was so in the middle of that, and no further
// off than half of it. For as long as it counts it goes before what the process has written into etcd, which may be late: the write waits
// where etcd is slow, and the reader too.
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

// readings are the other clocks, each once.
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
