package problem

import (
	"errors"
	"fmt"
	"net"
	"testing"
)

// Two attempts that fail for one reason have one text, though each had a port of its own, however the errors are
// wrapped.
func TestCause(t *testing.T) {
	failed := func(port int, ip, zone string) error {
		return fmt.Errorf("A: %w", &net.OpError{Op: "read", Net: "udp", Source: &net.UDPAddr{IP: net.ParseIP(ip), Zone: zone, Port: port},
			Addr: &net.UDPAddr{IP: net.ParseIP("10.0.0.10"), Port: 53}, Err: errors.New("i/o timeout")})
	}
	for _, c := range []struct{ ip, zone string }{{"10.1.2.3", ""}, {"fe80::1", "eth0"}, {"2001:db8::7", ""}} {
		first, second := Cause(failed(40001, c.ip, c.zone)), Cause(errors.New(failed(65535, c.ip, c.zone).Error()))
		if want := "A: read udp 10.0.0.10:53: i/o timeout"; first != want || second != want {
			t.Errorf("%q, %q, want %q", first, second, want)
		}
	}
	for _, same := range []string{"a -> b", "dial tcp 10.0.0.10:53: connect: connection refused", "x->y", "route 1.2.3.4->y"} {
		if got := Cause(errors.New(same)); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
}
