// Package progress prints how far a command is, as one line on a terminal, once the command has taken a second.
//
// Owns: the last line of the terminal while a command works.
// Reads: nothing.
// Never: writes to anything but a terminal; writes colours; leaves a line behind.
package progress

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Times of the line: of the first one, and between two.
const (
	patience = time.Second
	interval = 250 * time.Millisecond
)

// erase returns to the begin of the line and deletes it.
const erase = "\r\x1b[K"

// reporter counts the work of one command.
type reporter struct {
	terminal io.Writer

	mu            sync.Mutex
	begun, ended  int
	doing         string    // what is done beside requests; empty: nothing
	quiet         time.Time // when the command last wrote something, or began
	shown, closed bool
}

type key struct{}

// Start begins to report the work under the returned context. out and errs are writers for the command in place of the
// terminal's: they erase the line before they write. stop ends the report, and erases the line.
func Start(ctx context.Context, terminal, out, errs io.Writer) (_ context.Context, o, e io.Writer, stop func()) {
	r := &reporter{terminal: terminal, quiet: time.Now()}
	ctx, cancel := context.WithCancel(context.WithValue(ctx, key{}, r))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.run(ctx)
	}()
	return ctx, &writer{r, out}, &writer{r, errs}, func() {
		cancel()
		<-done
		r.erase(true)
	}
}

// Work reports something that takes time beside requests, until done is called. Without Start it does nothing.
func Work(ctx context.Context, what string) (done func()) {
	r, is := ctx.Value(key{}).(*reporter)
	if !is {
		return func() {}
	}
	set := func(what string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.doing = what
	}
	set(what)
	return func() { set("") }
}

// run prints the line while there is work.
func (r *reporter) run(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.print(began)
		}
	}
}

func (r *reporter) print(began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || time.Since(r.quiet) < patience || r.begun == r.ended && r.doing == "" {
		return
	}
	line := r.doing
	if r.begun > r.ended {
		line = fmt.Sprintf("%d of %d requests are answered", r.ended, r.begun)
	}
	r.shown = true
	fmt.Fprintf(r.terminal, "%s%s, %v", erase, line, time.Since(began).Round(time.Second))
}

// erase erases the line; at the end for good.
func (r *reporter) erase(end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown {
		fmt.Fprint(r.terminal, erase)
	}
	r.shown, r.quiet, r.closed = false, time.Now(), r.closed || end
}

// writer erases the line before each write.
type writer struct {
	r  *reporter
	to io.Writer
}

func (w *writer) Write(p []byte) (int, error) {
	w.r.erase(false)
	return w.to.Write(p)
}

// Transport returns a round tripper whose requests are counted, until their bodies are closed, for contexts of Start.
func Transport(of http.RoundTripper) http.RoundTripper { return transport{of} }

type transport struct{ of http.RoundTripper }

// RoundTrip implements http.RoundTripper. Errors are those of the round tripper below.
func (t transport) RoundTrip(q *http.Request) (*http.Response, error) {
	r, is := q.Context().Value(key{}).(*reporter)
	if !is {
		return t.of.RoundTrip(q)
	}
	r.count(&r.begun)
	res, err := t.of.RoundTrip(q)
	if err != nil || res.Body == nil {
		r.count(&r.ended)
		return res, err
	}
	res.Body = &body{ReadCloser: res.Body, end: sync.OnceFunc(func() { r.count(&r.ended) })}
	return res, nil
}

func (r *reporter) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// body ends a request when it is closed.
type body struct {
	io.ReadCloser
	end func()
}

// Close closes the body. Errors are those of the body.
func (b *body) Close() error {
	b.end()
	return b.ReadCloser.Close()
}
