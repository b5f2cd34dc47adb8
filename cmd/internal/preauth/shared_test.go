package preauth

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// Clients of a shared address wait for room, and keep their places while they are being served; those of other
// addresses are refused at once.
func TestSharedSourcesWait(t *testing.T) {
	const place = 4 * time.Second // longer than it takes to detect waiting clients
	w := start(t, Limits{Total: 8, PerSource: 2, Waiting: 1, Progress: place, Credential: 5 * place, Shared: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}})
	hello := w.hello()
	begin := func(from string) net.Conn {
		c := w.raw(from)
		if _, err := c.Write(hello); err != nil {
			t.Fatal(err)
		}
		return c
	}
	answered := func(c net.Conn) {
		if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		answered(begin("127.0.0.3"))
	}
	w.ended("one more of an address that is not shared", begin("127.0.0.3"))
	var shared []net.Conn
	for range 6 {
		shared = append(shared, begin("127.0.0.2"))
		answered(shared[len(shared)-1])
	}
	waits := begin("127.0.0.2")
	if !w.open(waits) || !w.open(shared[0]) {
		t.Error("there is no room, and somebody was closed")
	}
	if n, _ := io.ReadFull(begin("127.0.0.2"), make([]byte, 1)); n > 0 {
		t.Error("one more than may wait has got a place")
	}
	shared[0].Close()
	answered(waits)
}
