package preauth

import (
	"errors"
	"runtime"
	"testing"
)

// Two streams of a connection begin at once, and the connection has no room at its holder: both are refused. Without
// the wait of assign, one of them is served in most of the rounds.
func TestAssignsWaitForOneAnother(t *testing.T) {
	full := errors.New("too many connections")
	refuses := func(func()) (Holder, error) {
		runtime.Gosched()
		return nil, full
	}
	for range 1000 {
		c, answers := &conn{}, make(chan error, 2)
		for range 2 {
			go func() { answers <- c.assign(refuses) }()
		}
		for range 2 {
			if err := <-answers; !errors.Is(err, full) {
				t.Fatalf("a stream of a refused connection was answered %v", err)
			}
		}
	}
}
