package main

import (
	"context"
	"net"
	"testing"
	"time"

	"navarch.io/navarch/deploy/demo/traffic/count"
)

// started starts a server at the protocols' ports of a loopback address.
func started(t *testing.T, host string) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s := &server{name: "web", version: "v1", stopping: ctx.Done()}
	listeners := map[string]net.Listener{}
	for _, port := range []string{httpPort, http2Port, grpcPort, tcpPort} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		listeners[port] = l
	}
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, listeners) }()
	return func() error { cancel(); return <-ended }
}

// A server is called by every protocol over open connections. When it ends, no request fails: it requests callers of
// streams and connections to end them, and answers until they do.
func TestServerEndsWithoutFailing(t *testing.T) {
	const host = "127.0.97.1"
	stop := started(t, host)
	all := map[string]caller{}
	for protocol, of := range callers {
		with := of(host)
		defer with.close()
		all[protocol] = with
	}
	call := func(protocol string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		version, _, err := all[protocol].call(ctx)
		if err == nil && (protocol == "http/1.1" || protocol == "http/2") && version != "v1" {
			t.Errorf("%s: version %q", protocol, version)
		}
		return err
	}
	for protocol := range all {
		for range 3 {
			if err := call(protocol); err != nil {
				t.Fatalf("%s: %v", protocol, err)
			}
		}
	}
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	for _, protocol := range []string{"grpc stream", "tcp"} {
		for open := true; open; {
			if err := call(protocol); err != nil {
				t.Fatalf("%s, while the server ends: %v", protocol, err)
			}
			switch c := all[protocol].(type) {
			case *stream:
				open = c.open != nil
			case *lines:
				open = c.conn != nil
			}
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended: %v", err)
	}
	for protocol := range all {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if _, _, err := all[protocol].call(ctx); err == nil {
			t.Errorf("%s: a server that is gone has answered", protocol)
		}
		cancel()
	}
}

// Failures are counted by workload and protocol.
func TestTally(t *testing.T) {
	var c tally
	at := time.Now()
	c.add("web", "tcp", "", "", nil, at)
	c.add("web", "tcp", "", "", net.ErrClosed, at)
	c.add("web", "http/1.1", "v2", "By=...", nil, at)
	web := c.count.Workloads["web"]
	if p := web.Protocols["tcp"]; p.Sent != 2 || p.Failed != 1 || p.LastFailure == "" {
		t.Errorf("tcp: %+v", p)
	}
	if web.Caller != "By=..." || !web.Last["v2"].Equal(at) {
		t.Errorf("web: %+v", web)
	}
	if span := c.count.Since(&count.Report{}); span.Sent != 3 || span.Failed != 1 {
		t.Errorf("span: %+v", span)
	}
}
