// Package web is the common part of the commands' HTTP servers. It limits connections and requests (Serve), the cost of
// answers (Turns), and the cost of TLS handshakes (Handshakes). It recognises callers on this machine (SameMachine),
// and refuses requests that a page of another site makes a browser send (Guard).
//
// Owns: the connections that it accepted. Reads: heads of requests. Never: interprets the content of a page; decides
// which callers may read it.
package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"navarch.io/navarch/store/obs"
)

// Limits are the limits of one server. A zero field stands for its default, which the comment of the field states.
type Limits struct {
	// HeaderBytes is the maximum size of the head of a request, without the 4 KiB that net/http adds. A head may
	// contain a token of at most 8 KiB (attest.TokensConfig.MaxBytes). Default: 16 KiB.
	HeaderBytes int
	Header      time.Duration // maximum time for reading the head of a request; default: 5 s
	Request     time.Duration // maximum time for reading the whole request; default: 10 s
	Answer      time.Duration // maximum time from the end of the request's head to the end of the answer; default: 2 min
	Idle        time.Duration // maximum time between two requests on one connection; default: 1 min
	Connections int           // maximum number of open connections; default: 256
	PerSource   int           // maximum number of open connections from one IPv4 address or IPv6 /64; default: 64
	Body        int64         // maximum size of a request's body in bytes; further reads fail; default: 64 KiB
	// Leave is the time for which Serve still answers after the end of its context. During this time each connection
	// is closed with its next response. A client that sends many requests on one connection thus moves to another
	// server before this server ends. Default: 0.
	Leave time.Duration
}

// fill sets the defaults.
func (l *Limits) fill() {
	defaults := Limits{HeaderBytes: 16 << 10, Header: 5 * time.Second, Request: 10 * time.Second, Answer: 2 * time.Minute, Idle: time.Minute,
		Connections: 256, PerSource: 64, Body: 64 << 10}
	l.HeaderBytes = cmp.Or(l.HeaderBytes, defaults.HeaderBytes)
	l.Header = cmp.Or(l.Header, defaults.Header)
	l.Request = cmp.Or(l.Request, defaults.Request)
	l.Answer = cmp.Or(l.Answer, defaults.Answer)
	l.Idle = cmp.Or(l.Idle, defaults.Idle)
	l.Connections = cmp.Or(l.Connections, defaults.Connections)
	l.PerSource = cmp.Or(l.PerSource, defaults.PerSource)
	l.Body = cmp.Or(l.Body, defaults.Body)
}

// Serve answers requests on a listener until ctx ends and Limits.Leave has passed. Serve then closes the listener.
// Requests may finish for one more second, after which Serve closes their connections and returns nil. If the listener
// fails first, Serve closes the listener and returns the wrapped error.
//
// A source is an IPv4 address or an IPv6 /64. Above Limits.Connections, Serve closes the oldest connection of the
// source with the most connections. Above Limits.PerSource, it closes the oldest connection of that source. The
// argument clients logs these closings, unless it is nil.
func Serve(ctx context.Context, l net.Listener, h http.Handler, limits Limits, clients *obs.Sampled) error {
	limits.fill()
	var leaving atomic.Bool
	server := &http.Server{
		Handler: http.MaxBytesHandler(closing(h, &leaving), limits.Body), MaxHeaderBytes: limits.HeaderBytes, ReadHeaderTimeout: limits.Header,
		ReadTimeout: limits.Request, WriteTimeout: limits.Answer, IdleTimeout: limits.Idle,
	}
	answered := make(chan struct{}) // closed when the server was shut down
	stop := context.AfterFunc(ctx, func() {
		defer close(answered)
		leaving.Store(true)
		time.Sleep(limits.Leave)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close()
		}
	})
	defer stop()
	if err := server.Serve(bound(l, limits.Connections, limits.PerSource, clients)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http server on %s: %w", l.Addr(), err)
	}
	<-answered
	return nil
}

// closing makes h close each connection with its next response while leaving is true (RFC 9112, section 9.6; over
// HTTP/2 a GOAWAY).
func closing(h http.Handler, leaving *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
