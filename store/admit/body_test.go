package admit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// taken returns the occupied bytes of the room.
func (r *room) taken(all int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return all - r.free
}

// A review with a large announced and a slowly sent body occupies no more room than the pieces that it has sent, and
// ends when the time for its body is over. A review that arrives completely is answered.
// Promise: security-admission.md#bytes
func TestSlowBodies(t *testing.T) {
	t.Run("a byte", func(t *testing.T) { slowBody(t, 1, firstBytes) })
	t.Run("a piece and a byte", func(t *testing.T) { slowBody(t, firstBytes+1, 2*firstBytes) })
}

// slowBody sends the first bytes of a review of 8 MB, by which so many are occupied.
func slowBody(t *testing.T, sent int, occupied int64) {
	s := newServer(Config{BodyTime: time.Second}, func(context.Context, string, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return Allow()
	})
	server := httptest.NewServer(s)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /test HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
		"Content-Length: 8000000\r\n\r\n{"+strings.Repeat(" ", sent-1))
	most := int64(0)
	answered := make(chan *http.Response, 1)
	go func() {
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Error(err)
		}
		answered <- response
	}()
	for {
		select {
		case response := <-answered:
			if response.StatusCode != http.StatusRequestTimeout || !response.Close || most != occupied {
				t.Errorf("%s, close %v; %d bytes were taken", response.Status, response.Close, most)
			}
			if _, err := io.Copy(io.Discard, conn); err != nil { // the server closes it, though there is more to come
				t.Error(err)
			}
			response, err := http.Post(server.URL+"/test", "application/json", io.MultiReader(strings.NewReader(good), strings.NewReader(strings.Repeat(" ", 1<<20))))
			if err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("a review of 1 MiB that does not say its length: %v %v", response, err)
			}
			if left := s.room.taken(s.MaxAll); left != 0 {
				t.Errorf("%d bytes are still taken", left)
			}
			return
		default:
			most = max(most, s.room.taken(s.MaxAll))
			runtime.Gosched()
		}
	}
}

// Hosts that use as much room as they can leave room for others. A client that is ahead is limited by its own share
// only, and precedes all waiting clients.
// Promise: security-admission.md#bytes
func TestShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 64
		r := newRoom(32, all)
		host := func(b byte) netip.Prefix { return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, b}), 32) }
		var claims []*claim
		for b := range byte(4) { // each claims room step by step as it is granted
			for {
				c := &claim{host: host(b)}
				if !r.fits(c, 1) {
					break
				}
				if err := r.take(t.Context(), c, 1); err != nil {
					t.Fatal(err)
				}
				claims = append(claims, c)
			}
		}
		if r.free < 4 {
			t.Errorf("four hosts leave %d of %d", r.free, all)
		}
		server := &claim{host: host(9), ahead: true}
		if err := r.take(t.Context(), server, r.free); err != nil {
			t.Fatal(err)
		}
		var order []string
		wait := func(name string, c *claim) {
			go func() {
				if r.take(t.Context(), c, 1) == nil {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		other, more := &claim{host: host(8)}, &claim{host: host(9), ahead: true}
		wait("other", other)
		wait("ahead", more)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r.take(ctx, &claim{host: host(7)}, 1) == nil {
			t.Error("there is no room")
		}
		for _, c := range claims {
			r.leave(c)
			synctest.Wait()
		}
		if got := strings.Join(order, " "); got != "ahead other" {
			t.Error(got)
		}
		for _, c := range []*claim{server, other, more} {
			r.leave(c)
		}
		if r.free != all || len(r.hosts)+r.waiting.Len() != 0 {
			t.Errorf("%d free, %d hosts, %d wait", r.free, len(r.hosts), r.waiting.Len())
		}
	})
}

// Reviews that have each a part of their room do not wait for one another for ever: one after the other gets the rest.
// Promise: security-admission.md#bytes
func TestHalfReadReviewsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reviews, pieces, all = 40, 16, 64
		r := newRoom(32, all)
		var ended atomic.Int32
		for i := range reviews {
			go func() {
				c := &claim{host: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i % 3)}), 32)}
				defer r.leave(c)
				for taken := int64(1); taken <= pieces; taken++ {
					if err := r.take(t.Context(), c, 1); err != nil {
						t.Error(err)
					}
					if taken-c.bytes >= pieces {
						t.Errorf("%d pieces beyond the limits", taken-c.bytes)
					}
					time.Sleep(time.Second) // all others take their pieces
				}
				ended.Add(1)
			}()
		}
		time.Sleep(reviews * pieces * time.Second)
		synctest.Wait()
		if n := ended.Load(); n != reviews || r.free != all || r.last != nil || len(r.hosts) != 0 {
			t.Errorf("%d of %d reviews have ended; %d free, %d hosts", n, reviews, r.free, len(r.hosts))
		}
	})
}

// For any number of hosts that use as much room as they can, each review of another host gets its room first.
// Promise: security-admission.md#bytes
func TestRoomForNewcomers(t *testing.T) {
	const all = 1024
	r := newRoom(all, all)
	for b := range byte(200) {
		c := &claim{host: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 1, b}), 32)}
		for n := int64(1); r.within(c, n); n = 20 {
			r.grant(c, n)
		}
	}
	if c := (&claim{host: netip.MustParsePrefix("10.0.2.1/32")}); !r.fits(c, 1) || r.free < all/4 {
		t.Errorf("200 hosts leave %d of %d", r.free, all)
	}
}
