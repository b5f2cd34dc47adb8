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

// SubscribeSecrets says that the proxy wants some Secrets by resource name, and others no more. It returns when the proxy's set says
// what there is of them, or a moment later, when it takes long to find out whether the proxy may have them, or to open them: then
// they are pending, and moved is called.
func (p *Proxy) SubscribeSecrets(ctx context.Context, add, drop []string) {
	l := p.loop
	patience, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	var decision <-chan struct{}
	var opening []<-chan struct{}
	err := l.callFor(ctx, p.Node.Verified, func() {
		moved := l.planner.SubscribeSecrets(p.Handle, add, drop)
		l.authorise(time.Now())
		decision, opening = l.decision(p), l.openingFor(p)
		if decision == nil {
			l.reportMissing(p, add)
		}
		l.notify(moved)
	})
	if err == nil && decision != nil && waitFor(patience, decision) {
		err = l.call(ctx, func() {
			opening = l.openingFor(p)
			l.reportMissing(p, add)
		})
	}
	if errors.Is(err, errFaulty) { // its client asks again on its next stream
		_ = l.call(ctx, func() {
			p.fault.Store(true)
			l.notify([]Moved{{p.Handle, Slow}})
		})
	}
	if err != nil {
		return
	}
	for _, done := range opening {
		if !waitFor(patience, done) {
			return
		}
	}
}

// waitFor says whether something was done before the context ended.
func waitFor(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// openingFor are closed when what a proxy asks for was opened, or could not be.
func (l *Loop) openingFor(p *Proxy) (opening []<-chan struct{}) {
	if _, here := l.proxies[p.Handle]; !here {
		return nil
	}
	for _, key := range l.planner.pendingKeys(p.Handle) {
		if l.opening[key] == nil {
			l.opening[key] = make(chan struct{})
		}
		opening = append(opening, l.opening[key])
	}
	return opening
}

// maxReported bounds the lines that one request of a proxy can fill the log with.
const maxReported = 5

// reportMissing says what of a request there is not for the proxy, and why.
func (l *Loop) reportMissing(p *Proxy, names []string) {
	reported := 0
	for _, name := range names {
		cause, why := l.planner.missing(p.Handle, name)
		if cause == "" {
			continue
		}
		if reported++; reported > maxReported {
			return
		}
		l.clients.Warn("a proxy is not sent a Secret that it subscribes to", cause, obs.KeyNode, p.Node.ID, obs.KeyPeer, p.Node.Peer, obs.KeyName, fmt.Sprintf("%.300q", name), obs.KeyReason, why)
	}
}

// open has what is sealed and asked for opened, beside the loop.
func (l *Loop) open() {
	for _, record := range l.planner.secrets.Sealed() {
		go func() {
			key, err := model.PrivateKey(nil), errNoOpener
			if l.cfg.Opener != nil {
				ctx, cancel := context.WithTimeout(context.Background(), openBudget)
				defer cancel()
				if fault := l.guarded(func() { key, err = l.cfg.Opener.Open(ctx, record.Key, record.Spec) }); fault != nil {
					key, err = nil, fault
				}
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
		l.notify(l.planner.Opened(record, key))
		return
	}
	before := l.failed[record.Key].times
	pause := min(openRetry<<min(before, 10), openPause)
	l.failed[record.Key] = failure{before + 1, err}
	obs.SecretErrors.Inc()
	l.log.Warn("the private key of a Secret cannot be decrypted: proxies that have the Secret keep it, and those that do not wait",
		obs.KeyObject, record.Key.String(), obs.KeyError, err, "again_in", pause)
	time.AfterFunc(pause, func() {
		_ = l.call(context.Background(), func() {
			if !l.planner.secrets.Unopened(record) {
				delete(l.failed, record.Key)
			}
			l.open()
		})
	})
}
