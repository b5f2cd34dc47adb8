// Package logs stores the output of a container by line with times, and returns it as the API of Pods' logs specifies.
//
// Owns: the newest lines of one run of a container, up to a limit. Reads: nothing. Never: writes a file.
package logs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// bound is the limit of one run's output in bytes.
const bound = 4 << 20

type line struct {
	at   time.Time
	text string // with its line break, if it has one
}

// Log is the output of one run.
type Log struct {
	mu      sync.Mutex
	lines   []line
	first   int // number of lines dropped before lines[0]
	size    int
	closed  bool
	changed chan struct{} // closed at every change
	open    sync.WaitGroup
}

// New returns an empty log.
func New() *Log { return &Log{changed: make(chan struct{})} }

// Keep stores the lines of r until its end, and closes r. The log is closed once all readers have ended, see Close.
func (l *Log) Keep(r io.ReadCloser) {
	l.open.Go(func() {
		defer r.Close()
		for in := bufio.NewReaderSize(r, 64<<10); ; {
			text, err := in.ReadSlice('\n') // a longer line is split
			if len(text) > 0 {
				l.add(line{time.Now(), string(text)})
			}
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				return
			}
		}
	})
}

func (l *Log) add(one line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, one)
	for l.size += len(one.text); l.size > bound; {
		l.size -= len(l.lines[0].text)
		l.lines = l.lines[1:]
		l.first++
	}
	l.wake()
}

func (l *Log) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Close waits for the readers of Keep, and then ends all calls of Read that follow the log.
func (l *Log) Close() {
	l.open.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.wake()
}

// Options are the options of a request for a Pod's log.
type Options struct {
	Follow, Timestamps bool
	Tail               int // number of lines; negative: all
	Limit              int // bytes; 0: no limit
	Since              time.Time
}

// Read writes lines to w, and calls flush after each batch, until the end of the log; with Follow until the log is
// closed or ctx ends. The error is that of w.
func (l *Log) Read(ctx context.Context, w io.Writer, o Options, flush func()) error {
	l.mu.Lock()
	next := l.first
	if o.Tail >= 0 {
		next = max(next, l.first+len(l.lines)-o.Tail)
	}
	l.mu.Unlock()
	for written := 0; ; {
		l.mu.Lock()
		next = max(next, l.first)
		batch := l.lines[next-l.first:]
		next += len(batch)
		closed, changed := l.closed, l.changed
		l.mu.Unlock()
		for _, one := range batch {
			if one.at.Before(o.Since) {
				continue
			}
			text := one.text
			if o.Timestamps {
				text = one.at.UTC().Format(time.RFC3339Nano) + " " + text
			}
			if o.Limit > 0 {
				text = text[:min(len(text), o.Limit-written)]
			}
			if _, err := io.WriteString(w, text); err != nil {
				return fmt.Errorf("write log: %w", err)
			}
			if written += len(text); o.Limit > 0 && written >= o.Limit {
				return nil
			}
		}
		flush()
		if closed || !o.Follow {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
