package proxy

import (
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

// An endpoint that changes faster than the window of a revert makes proxies return to both of its versions repeatedly:
// the first proxy to step back is not at fault, because others follow a moment later.
func TestFlappingContentsAreNoStepBack(t *testing.T) {
	s := serve(t, nil)
	f := fleet(t, 5, Config{RevertWindow: time.Hour}, s)
	change := func(version string, port uint32, to ...string) {
		s.set(xds.Endpoint, "a", version, endpoints("a", port))
		s.say(xds.Endpoint, []string{"a"}, nil, to...)
		s.settled()
	}
	change("2", 2)
	change("1", 1, "p0")
	first := open(f)[0].at
	change("1", 1, "p1", "p2", "p3", "p4") // all have left 2
	change("2", 2)
	change("1", 1, "p0") // the first leaves 2 again
	all := open(f)
	last := all[len(all)-1].at
	f.suspects.judge(f, first.Add(time.Hour+last.Sub(first)/2)) // between the ends of the two windows
	clean(t, f)
	change("1", 1, "p1", "p2", "p3", "p4")
	f.suspects.judge(f, time.Now().Add(2*time.Hour))
	clean(t, f)
}

// open returns the suspicions whose window has not ended.
func open(f *Fleet) []suspect {
	f.suspects.mu.Lock()
	defer f.suspects.mu.Unlock()
	return append([]suspect(nil), f.suspects.all...)
}
