// Package progress shows the progress of a command as one line on a terminal, after the command has been silent for a
// second.
//
// Owns: the last line of the terminal while a command runs.
// Reads: nothing.
// Never: writes the line to anything but the terminal; writes colours; leaves the line behind.
package progress

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// patience is the silence before the line is shown. interval is the time between updates.
const (
	patience = time.Second
	interval = 250 * time.Millisecond
)

// erase moves the cursor to the beginning of the line and deletes the line.
const erase = "\r\x1b[K"

// reporter counts the requests of one command.
type reporter struct {
	terminal io.Writer

	mu            sync.Mutex
	begun, ended  int
	doing         string    // work besides requests, for the line; empty: no such work
	quiet         time.Time // time of the command's last output or of its start
	shown, closed bool
}

type key struct{}

// Start begins to show the progress of a command on the terminal. It shows requests (Transport) and texts (Work) whose
// context is the returned context, or derives from it. The command must write its output to the returned writers o and
// e. These writers erase the line, and then write to out and errs. The returned function stop cancels the context and
// erases the line. The caller must call stop, and may call it again. After stop, o and e only pass their input on.
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

// Work shows a text about the present work until the returned function is called. While requests are pending, their
// numbers are shown instead. A later call of Work replaces the text. The returned function is never nil. It also
// removes the text of a later call of Work. If ctx does not come from Start, Work shows nothing.
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

// run updates the line until ctx ends.
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

// erase erases the line. If end is true, the line is never shown again. If end is false, run shows the line again after
// patience.
func (r *reporter) erase(end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown {
		fmt.Fprint(r.terminal, erase)
	}
	r.shown, r.quiet, r.closed = false, time.Now(), r.closed || end
}

// writer erases the line before each write to another writer.
type writer struct {
	r  *reporter
	to io.Writer
}

// Write implements io.Writer. Results are those of the other writer.
func (w *writer) Write(p []byte) (int, error) {
	w.r.erase(false)
	return w.to.Write(p)
}

// Transport returns a round tripper that counts requests whose context comes from Start. A request is pending until it
// fails, or until its response body is closed. Other requests pass unchanged. The result is safe for concurrent use if
// the wrapped round tripper is.
func Transport(of http.RoundTripper) http.RoundTripper { return transport{of} }

type transport struct{ of http.RoundTripper }

// RoundTrip passes the request on and counts it. Errors are those of the wrapped round tripper.
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

// body is a response body that calls end when it is closed.
type body struct {
	io.ReadCloser
	end func()
}

// Close calls end and closes the body. Errors are those of the body.
func (b *body) Close() error {
	b.end()
	return b.ReadCloser.Close()
}
