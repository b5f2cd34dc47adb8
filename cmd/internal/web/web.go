// Package web is the common part of our commands' HTTP servers: their limits, the check for callers on this machine,
// the defence against requests that a page of another site makes a browser send, and the cost of answers.
//
// Owns: the connections that it accepted.  Reads: heads of requests.  Never: knows the content of a page; decides who
// may read it.
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

// Limits of one server. A field that is zero has its default.
type Limits struct {
	// HeaderBytes is the maximum size of the head of a request, beside the 4 KiB that net/http adds: 16 KiB. A token
	// has 8 KiB at most (attest.TokensConfig.MaxBytes).
	HeaderBytes int
	Header      time.Duration // until the head of a request was read: 5 s
	Request     time.Duration // until the whole request was read: 10 s
	Answer      time.Duration // from the request's head to the end of the answer, including the seconds of a profile: 2 min
	Idle        time.Duration // between two requests on one connection: 1 min
	Connections int           // open at once: 256
	PerSource   int           // open at once from one IPv4 address or one IPv6 /64: 64
	Body        int64         // bytes that are read of a request's body: 64 KiB
	// Leave is the time before the server ends in which each connection is closed with its next answer. A client that
	// sends many requests on one connection so moves to another server, and no request meets a connection that is just
	// being closed. 0: none.
	Leave time.Duration
}

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

// Serve answers on a listener until the context ends and Limits.Leave has passed, then lets requests finish for a
// second. If there are more connections than the limits allow, it closes the oldest one of the source with the most, so
// that new callers are accepted, and logs that to clients, which may be nil. It returns the listener's error.
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

// closing makes connections close with their next answer once the server leaves (RFC 9112, section 9.6; over HTTP/2 it
// is a GOAWAY).
func closing(h http.Handler, leaving *atomic.Bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leaving.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
