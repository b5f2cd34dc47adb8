package remote

import (
	"net"
	"testing"
)

// IPv4 addresses in either notation, and the /64 of IPv6 addresses, are hosts; a Unix socket has no host.
func TestHost(t *testing.T) {
	of := func(address string) string {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return Host(a).String()
	}
	for a, b := range map[string]string{"10.1.2.3:4": "[::ffff:10.1.2.3]:5", "[2001:db8:0:1::1]:4": "[2001:db8:0:1:ffff::2]:5", "[fe80::1%lo]:1": "[fe80::2]:1"} {
		if of(a) != of(b) {
			t.Errorf("%s and %s are two: %s, %s", a, b, of(a), of(b))
		}
	}
	for a, b := range map[string]string{"10.1.2.3:4": "10.1.2.4:4", "[2001:db8:0:1::1]:4": "[2001:db8:0:2::1]:4"} {
		if of(a) == of(b) {
			t.Errorf("%s and %s are one: %s", a, b, of(a))
		}
	}
	if a := Host(&net.UnixAddr{Name: "@", Net: "unix"}); a.IsValid() {
		t.Errorf("a socket has the source %v", a)
	}
}
