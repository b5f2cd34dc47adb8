package preauth

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const long = time.Hour // longer than a test

// Silent connections lock no client out, neither from elsewhere nor from the same address, and none of them stays open
// for long.
// Promise: security-connections.md#places-and-time
func TestSilentConnectionsLockNobodyOut(t *testing.T) {
	w := start(t, Limits{Total: 24, PerSource: 8, Credential: long})
	before := w.served("before", "127.0.0.2")
	silent := map[string][]net.Conn{}
	for i := range 120 {
		from := fmt.Sprintf("127.0.0.%d", 2+i%5)
		silent[from] = append(silent[from], w.raw(from))
	}
	w.served("elsewhere", "127.0.0.9")
	w.served("same address", "127.0.0.2")
	for from, all := range silent {
		w.ended("the oldest of "+from, all[0])
	}
	if n := w.limiter.Open(); n > 24 {
		t.Errorf("%d are served, 24 at most", n)
	}
	if err := ask(t.Context(), before, "good", 10); err != nil {
		t.Errorf("who was there before: %v", err)
	}
	log := w.log.String()
	if strings.Count(log, "refused before a credential was shown") != 1 || !strings.Contains(log, "cause=displaced") || !strings.Contains(log, "peer=127.0.0.") {
		t.Errorf("log:\n%s", log)
	}
}

// Connections whose handshake arrives byte by byte and does not end lock no client out.
// Promise: security-connections.md#handshakes
func TestTricklesLockNobodyOut(t *testing.T) {
	w := start(t, Limits{PerSource: 8, Progress: long, Credential: long})
	hello := w.hello()
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 8 {
		c := w.raw("127.0.0.2")
		_, _ = c.Write(hello[:len(hello)/2])
		all.Go(func() {
			for _, b := range hello[len(hello)/2 : len(hello)-1] {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				select {
				case <-ctx.Done():
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
			<-ctx.Done()
		})
	}
	for range 3 {
		w.served("same address", "127.0.0.2")
	}
	stop()
	all.Wait()
}

// A client that begins a handshake and then stays silent occupies no turn: one turn is enough for all others.
// Promise: security-connections.md#handshakes
func TestTurnsAreNotHeld(t *testing.T) {
	w := start(t, Limits{Steps: 1, Credential: long})
	hello := w.hello()
	for i, part := range [][]byte{hello[:1], hello[:5], hello[:len(hello)-1], hello, hello} {
		c := w.raw(fmt.Sprintf("127.0.0.%d", 2+i))
		if _, err := c.Write(part); err != nil {
			t.Fatal(err)
		}
		if len(part) == len(hello) { // the server answered
			if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.served("same address", "127.0.0.2")
	w.served("elsewhere", "127.0.0.9")
}

// A connection without a credential is closed at the end of its time, whatever else its client sends.
// Promise: security-connections.md#places-and-time
func TestCredentialInTime(t *testing.T) {
	w := start(t, Limits{Credential: 4 * time.Second, Calls: 1 << 20, Bytes: 1 << 30, Headers: 1 << 30})
	byToken, byCertificate := w.served("token", "127.0.0.2"), w.client("127.0.0.2", true)
	if err := byCertificate.Invoke(t.Context(), anybody, &wrapperspb.BytesValue{}, &wrapperspb.BytesValue{}); err != nil {
		t.Fatal(err)
	}
	hello := w.hello()
	open := map[string]net.Conn{"says nothing": w.raw("127.0.0.3"), "says hello": w.raw("127.0.0.3"), "trickles": w.raw("127.0.0.3"),
		"HTTP/2, and no call": w.http2("127.0.0.3").conn}
	_, _ = open["says hello"].Write(hello)
	var all sync.WaitGroup
	all.Go(func() {
		for _, b := range hello {
			if _, err := open["trickles"].Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	calls := w.http2("127.0.0.3")
	for calls.answer(calls.call(checked)) != "the connection ended" { // Unauthenticated, again and again
	}
	for name, c := range open {
		w.ended(name, c)
	}
	all.Wait()
	for name, conn := range map[string]*grpc.ClientConn{"token": byToken, "certificate": byCertificate} {
		if !same(t, conn) {
			t.Errorf("by %s: the connection was closed", name)
		}
	}
	if !strings.Contains(w.log.String(), "cause=no_credential") {
		t.Errorf("log:\n%s", w.log)
	}
}

// same reports whether a client that uses its connection still has the same one.
func same(t *testing.T, conn *grpc.ClientConn) bool {
	t.Helper()
	before := conn.GetState()
	err := conn.Invoke(t.Context(), anybody, &wrapperspb.BytesValue{}, &wrapperspb.BytesValue{})
	return err == nil && before.String() == "READY"
}

// Header lists are limited for all clients, and without a credential also those of all calls together.
// Promise: security-connections.md#bytes-headers-and-messages
func TestHeaders(t *testing.T) {
	w := start(t, Limits{Credential: long, Bytes: 1 << 20})
	fields := func(n, size int) (all []hpack.HeaderField) {
		for range n {
			all = append(all, hpack.HeaderField{Name: "x", Value: strings.Repeat("x", size)})
		}
		return all
	}
	const unauthenticated, exhausted, over, hungUp = "16", "8", "FRAME_SIZE_ERROR", "the connection ended"
	for name, c := range map[string]struct {
		n, size int
		want    string // of the first call with them
		next    string // of the second
	}{
		"a token":        {1, 8 << 10, unauthenticated, unauthenticated},
		"much":           {8, 2 << 10, unauthenticated, exhausted}, // about 2 KiB encoded
		"long":           {1, 20 << 10, hungUp, hungUp},
		"many":           {600, 1, exhausted, exhausted},
		"over the limit": {33, 1 << 10, over, hungUp},
		"one over it":    {1, 33 << 10, hungUp, hungUp},
		"a bomb":         {5000, 2000, over, hungUp}, // 10 MB decoded: one entry of the table, repeated with one byte each
		"great ones":     {20, 16 << 10, hungUp, hungUp},
	} {
		conn := w.http2("127.0.0.2")
		for _, want := range []string{c.want, c.next} {
			if got := conn.answer(conn.call(checked, fields(c.n, c.size)...)); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		conn.conn.Close()
	}
	for w.limiter.Open() > 0 {
		time.Sleep(time.Millisecond)
	}
	c := w.http2("127.0.0.2")
	_ = c.call(checked, hpack.HeaderField{Name: "authorization", Value: "good"})
	for w.limiter.ledger.Known() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		if got := c.answer(c.call(checked, fields(1, 20<<10)...)); got != unauthenticated {
			t.Errorf("after the credential: %s", got)
		}
	}
	if got := c.answer(c.call(checked, fields(33, 1<<10)...)); got != over {
		t.Errorf("after the credential, over the limit: %s", got)
	}
}

// The bytes that a client may send without a credential are limited, also while gRPC reads a message before
// authentication.
// Promise: security-connections.md#bytes-headers-and-messages
func TestBytes(t *testing.T) {
	w := start(t, Limits{Credential: 12 * time.Second}) // a quarter of it to verify a credential
	c := w.http2("127.0.0.2")
	stream := c.call(anybody)
	if err := c.WriteData(stream, false, []byte{0, 0, 0x30, 0, 0}); err != nil { // announces 3 MiB, which gRPC would accept
		t.Fatal(err)
	}
	for range 4 { // 64 KiB are in the window
		_ = c.WriteData(stream, false, make([]byte, 16<<10-2))
	}
	w.ended("a great message", c.conn)
	if !strings.Contains(w.log.String(), "cause=too_many_bytes") {
		t.Errorf("log:\n%s", w.log)
	}
	if err := ask(t.Context(), w.client("127.0.0.2", false), "bad", 3<<20); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a great message on a stream, without a credential: %v", err)
	}
	if err := ask(t.Context(), w.client("127.0.0.2", false), "good", 3<<20); err != nil { // its first 64 KiB arrive before the credential is verified
		t.Errorf("a great message with a credential: %v", err)
	}
	if err := w.client("127.0.0.2", true).Invoke(t.Context(), anybody, &wrapperspb.BytesValue{Value: make([]byte, 3<<20)}, &wrapperspb.BytesValue{}); err != nil {
		t.Errorf("a great message with a certificate: %v", err)
	}
}

// A client that has sent the maximum without a credential loses its place to others of its source.
func TestFullConnectionsLockNobodyOut(t *testing.T) {
	w := start(t, Limits{PerSource: 4, Progress: time.Nanosecond, Credential: long})
	for range 8 {
		c := w.http2("127.0.0.2")
		stream := c.call(anybody)
		_ = c.WriteData(stream, false, []byte{0, 0, 0x30, 0, 0})
		for range 4 {
			_ = c.WriteData(stream, false, make([]byte, 16<<10-2))
		}
	}
	w.served("same address", "127.0.0.2")
}

// The number of calls without a credential is limited for each connection.
// Promise: security-connections.md#bytes-headers-and-messages
func TestCalls(t *testing.T) {
	w := start(t, Limits{Credential: long, Calls: 3})
	conn := w.client("127.0.0.2", false)
	for i := range 5 {
		want := codes.Unauthenticated
		if i >= 3 {
			want = codes.ResourceExhausted
		}
		if err := ask(t.Context(), conn, "bad", 1); status.Code(err) != want {
			t.Errorf("call %d: %v, want %v", i+1, err, want)
		}
	}
	other := w.served("another connection", "127.0.0.2")
	for range 10 {
		if err := ask(t.Context(), other, "good", 1); err != nil {
			t.Error(err)
		}
	}
	conn.Close()
	other.Close()
	for w.limiter.Open() != 0 || w.limiter.ledger.Known() != 0 {
		time.Sleep(time.Millisecond)
	}
}

// More pings than one in a second end a connection, an authenticated one too.
// Promise: security-connections.md#bytes-headers-and-messages
func TestPingsAreBounded(t *testing.T) {
	w := start(t, Limits{Credential: long})
	c := w.http2("127.0.0.2")
	_ = c.call(checked, hpack.HeaderField{Name: "authorization", Value: "good"})
	for range 10 {
		_ = c.WritePing(false, [8]byte{})
	}
	w.ended("pings", c.conn)
}

// A source with authenticated connections gets places for more of them, whatever other sources do.
// Promise: security-connections.md#places-and-time
func TestKnownSourcesHaveRoom(t *testing.T) {
	w := start(t, Limits{Total: 16, PerSource: 16, Known: 4, Credential: long})
	w.served("first", "127.0.0.2")
	kept := w.raw("127.0.0.2")
	for i := range 100 {
		w.raw(fmt.Sprintf("127.0.1.%d", i))
	}
	w.served("later", "127.0.0.2")
	if !w.open(kept) {
		t.Error("the source lost its room to others")
	}
}

// The number of tiny frames is limited too: each costs the server a step.
// Promise: security-connections.md#bytes-headers-and-messages
func TestFrames(t *testing.T) {
	w := start(t, Limits{Credential: 12 * time.Second}) // a quarter of it to verify a credential
	c := w.http2("127.0.0.2")
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
	for range 1000 {
		_ = c.WriteContinuation(1, false, nil)
	}
	w.ended("frames without an end", c.conn)
	if !strings.Contains(w.log.String(), "cause=too_many_frames") {
		t.Errorf("log:\n%s", w.log)
	}
	called := w.http2("127.0.0.2") // its credential may still arrive: the server waits for it
	_ = called.call(anybody)
	for range 200 {
		_ = called.WriteWindowUpdate(0, 1)
	}
	w.ended("frames after a call", called.conn)
	conn := w.served("elsewhere", "127.0.0.3")
	for range 200 { // after a credential, frames are not counted
		if err := ask(t.Context(), conn, "good", 1); err != nil {
			t.Fatal(err)
		}
	}
}

// In a storm of valid clients behind one address, every client is served.
func TestStormOfGoodClients(t *testing.T) {
	w := start(t, Limits{Total: 32, PerSource: 8, Credential: long, Shared: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	var all sync.WaitGroup
	for range 200 {
		conn := w.client("127.0.0.1", false)
		all.Go(func() {
			if err := ask(t.Context(), conn, "good", 100); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if log := w.log.String(); log != "" {
		t.Errorf("log:\n%s", log)
	}
}
