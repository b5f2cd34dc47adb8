package web

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/store/turns"
)

// Any number of handshakes of one host does not delay another host; a silent client has no turn.
// Promise: security-admission.md#turns-and-connections
func TestHandshakesTakeTurns(t *testing.T) {
	own := httptest.NewTLSServer(nil) // for its certificate
	defer own.Close()
	var mu sync.Mutex
	var order []string // hosts of hello messages, as they are answered
	conf := &tls.Config{Certificates: own.TLS.Certificates, MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		host, _, err := net.SplitHostPort(hello.Conn.RemoteAddr().String())
		order = append(order, host)
		return nil, err
	}}
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	line, us := turns.New(1, 0), netip.Prefix{}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, Handshakes(raw, conf, line), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "page") }), Limits{}, nil)
	}()
	dial(t, "127.0.0.4", raw.Addr().String()) // and says nothing
	line.Enter(us, false, nil)                // no other host has a turn
	var clients sync.WaitGroup
	waiting := 0
	get := func(from string) {
		t.Helper()
		clients.Go(func() {
			client := http.Client{Timeout: deadline, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // of this test
				DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext}}
			r, err := client.Get("https://" + raw.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			r.Body.Close()
		})
		for until := time.Now().Add(deadline); line.Waiting() <= waiting; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatal("the handshake does not wait for its turn")
			}
		}
		waiting++
	}
	for range 8 {
		get("127.0.0.2")
	}
	get("127.0.0.3")
	line.Leave(us)
	clients.Wait()
	mu.Lock()
	defer mu.Unlock()
	if len(order) != 9 || order[1] != "127.0.0.3" && order[0] != "127.0.0.3" {
		t.Errorf("answered %v", order)
	}
	if cancel(); <-served != nil || line.Waiting() != 0 {
		t.Errorf("%d wait", line.Waiting())
	}
}
