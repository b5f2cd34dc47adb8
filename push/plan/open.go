package plan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// Opener opens the private keys of Secrets. Safe for concurrent use. No error shows a private key.
type Opener interface {
	Open(ctx context.Context, key model.Key, spec *model.SecretSpec) (model.PrivateKey, error)
}

// errNoOpener is why Secrets stay closed where there is no Opener.
var errNoOpener = errors.New("this process has no key encryption key (--kek)")

// The times of opening.
const (
	openBudget  = 30 * time.Second       // of one attempt
	openRetry   = 500 * time.Millisecond // after the first that failed; twice as long after each further one
	openPause   = time.Minute            // at most
	askPatience = time.Second            // how long Ask waits for what has to be opened
)

// failure is how often in a row a private key could not be opened, and why.
type failure struct {
	times int
	err   error
}

// Ask says that the proxy wants some Secrets by resource name, and others no more. It returns when the proxy's set says
// what there is of them, or a moment later, when they take long to open: then they are pending, and moved is called.
func (p *Proxy) Ask(ctx context.Context, add, drop []string) {
	l := p.loop
	var opening []<-chan struct{}
	err := l.call(ctx, func() {
		keys, moved := l.planner.Ask(p.Handle, add, drop)
		l.tellMissing(p, add)
		for _, key := range keys {
			if l.opening[key] == nil {
				l.opening[key] = make(chan struct{})
			}
			opening = append(opening, l.opening[key])
		}
		l.open()
		l.tell(moved)
	})
	if err != nil || len(opening) == 0 {
		return
	}
	patience := time.NewTimer(askPatience)
	defer patience.Stop()
	for _, done := range opening {
		select {
		case <-done:
		case <-patience.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// maxTold bounds the lines that one request of a proxy can fill the log with.
const maxTold = 5

// tellMissing says what of a request there is not for the proxy, and why.
func (l *Loop) tellMissing(p *Proxy, names []string) {
	told := 0
	for _, name := range names {
		why := l.planner.missing(p.Handle, name)
		if why == "" {
			continue
		}
		if told++; told > maxTold {
			return
		}
		l.log.Warn("a proxy asks for a Secret that it is not sent", obs.KeyProxy, p.Node.ID, obs.KeyName, fmt.Sprintf("%.300q", name), "reason", why)
	}
}

// open has what is sealed and asked for opened, beside the loop.
func (l *Loop) open() {
	for _, record := range l.planner.Sealed() {
		go func() {
			key, err := model.PrivateKey(nil), errNoOpener
			if l.cfg.Opener != nil {
				ctx, cancel := context.WithTimeout(context.Background(), openBudget)
				defer cancel()
				key, err = l.cfg.Opener.Open(ctx, record.Key, record.Spec)
			}
			_ = l.call(context.Background(), func() { l.opened(record, key, err) }) // an ended loop has no proxies
		}()
	}
}

// opened takes what was opened, or why it was not: then the last good one stands, and it is tried again.
func (l *Loop) opened(record *model.Secret, key model.PrivateKey, err error) {
	if done := l.opening[record.Key]; done != nil {
		defer close(done) // after the set says so
		delete(l.opening, record.Key)
	}
	if err == nil {
		delete(l.failed, record.Key)
		l.tell(l.planner.Opened(record, key))
		return
	}
	before := l.failed[record.Key].times
	pause := min(openRetry<<min(before, 10), openPause)
	l.failed[record.Key] = failure{before + 1, err}
	obs.SecretErrors.Inc()
	l.log.Warn("the private key of a Secret cannot be opened: proxies keep what they have of it, and wait where they have nothing",
		obs.KeyObject, record.Key.String(), obs.KeyError, err, "again_in", pause)
	time.AfterFunc(pause, func() {
		_ = l.call(context.Background(), func() {
			if !l.planner.Unopened(record) {
				delete(l.failed, record.Key)
			}
			l.open()
		})
	})
}
