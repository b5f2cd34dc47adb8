package proxy

import (
	"io"
	"net"
	"testing"

	"navarch.io/navarch/push/xds"
)

// cutting returns the address of a link to a server. Its first connection is cut once `after` bytes have come from the
// server; the others are not.
func cutting(t *testing.T, server string, after int64) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for first := true; ; first = false {
			in, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			out, err := net.Dial("tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() {
				if first {
					_, _ = io.CopyN(in, out, after)
				} else {
					_, _ = io.Copy(in, out)
				}
				_ = in.Close()
				_ = out.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// counts returns the number of held resources of each type.
func counts(s *sim) (n [xds.NumTypes]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.held {
		n[t] = s.held[t].count
	}
	return n
}

// Resources of an incomplete response are not held, because gRPC passes whole messages. If a proxy claimed them, it
// would not receive them again, and would never subscribe to the resources that they need.
func TestCutInTheMiddleOfAResponse(t *testing.T) {
	s := serve(t, nil)
	s.many(2000, "1")
	whole := fleet(t, 1, Config{}, s)
	s.settled()
	want := counts(whole.all()[0])
	for _, after := range []int64{20 << 10, 250 << 10, 500 << 10, 600 << 10} {
		f := fleet(t, 1, Config{Addrs: []string{cutting(t, s.addr, after)}})
		s.settled()
		if got := counts(f.all()[0]); got != want {
			t.Errorf("cut after %d bytes: holds %v, want %v", after, got, want)
		}
		if n := f.Stats().Streams; n != 2 {
			t.Errorf("cut after %d bytes: %d streams", after, n)
		}
		clean(t, f)
	}
}
