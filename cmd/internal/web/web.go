// Package web is the common part of the commands' HTTP servers. It limits connections and requests (Serve) and the
// cost of answers (Turns), recognises callers on this machine (SameMachine), and refuses requests that a page of
// another site makes a browser send (Guard).
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

// Limits are the limits of one server. Each comment ends with the default, which a zero field stands for.
type Limits struct {
	// HeaderBytes is the maximum size of the head of a request, without the 4 KiB that net/http adds: 16 KiB. A token
	// has 8 KiB at most (attest.TokensConfig.MaxBytes).
	HeaderBytes int
	Header      time.Duration // for reading the head of a request: 5 s
	Request     time.Duration // for reading the whole request: 10 s
	Answer      time.Duration // from the request's head to the end of the answer, including the seconds of a profile: 2 min
	Idle        time.Duration // between two requests on one connection: 1 min
	Connections int           // open at once: 256
	PerSource   int           // open at once from one IPv4 address or one IPv6 /64: 64
	Body        int64         // bytes that are read of a request's body: 64 KiB
	// Leave is the time between the end of Serve's context and the end of the server. During this time each connection
	// is closed with its next response. A client that sends many requests on one connection thus moves to another
	// server, and no request meets a connection that is just being closed. Default: 0.
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

// Serve answers requests on a listener until ctx ends and Limits.Leave has passed; then requests may finish for one
// more second. Serve blocks during this time, closes the listener and returns nil. If the listener fails first, Serve
// returns its error. Above the limits of connections, it closes the oldest connection of the source with the most, and
// logs this to clients; nil: no log.
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
