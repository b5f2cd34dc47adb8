package plan

import (
	"context"
	"errors"
	"fmt"
	"time"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/obs"
)

// Opener decrypts the private keys of Secrets. Implementations must be safe for concurrent use, and their errors must
// not contain private keys.
type Opener interface {
	// Open decrypts the private key in spec, and returns it. The argument spec is the content of the Secret, and the
	// argument key is the Secret's object key. Open must return when ctx ends. After an error the Loop calls Open again
	// later, while a proxy needs the private key.
	Open(ctx context.Context, key model.Key, spec *model.SecretSpec) (model.PrivateKey, error)
}

// errNoOpener is the error of opening (decrypting) a private key if there is no Opener.
var errNoOpener = errors.New("this process has no key encryption key (--kek)")

// Durations for opening (decrypting) private keys.
const (
	openBudget        = 30 * time.Second       // maximum duration of one attempt
	openRetry         = 500 * time.Millisecond // pause after the first failed attempt; each further failure doubles it
	openPause         = time.Minute            // maximum pause
	subscribePatience = time.Second            // maximum time for which SubscribeSecrets waits for queries and keys
)

// failure counts the consecutive failed attempts to open a private key, with the last error.
type failure struct {
	times int
	err   error
}

// SubscribeSecrets changes the names of Secrets that the proxy subscribes to. It first drops the names in the second
// list, and then adds the names in the first list. It waits for the loop's goroutine. It also waits until the proxy's
// set (its planned resources) contains the available Secrets, but at most one second. It returns early when ctx ends,
// which may leave the names unchanged. When SubscribeSecrets returns, the proxy's right to a Secret may still be
// unknown, and a private key may not be decrypted yet. Such a Secret is added to the set later, and the Loop then calls
// the argument that Join got as moved. If an earlier SubscribeSecrets for this identity has panicked within the last
// ten seconds, the names stay unchanged, and Proxy.Err returns ErrUnplannable.
func (p *Proxy) SubscribeSecrets(ctx context.Context, add, drop []string) {
	l := p.loop
	patience, cancel := context.WithTimeout(ctx, subscribePatience)
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
	if errors.Is(err, errFaulty) { // the stream ends, and its client subscribes again on the next stream
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

// waitFor waits until the channel done is closed or the context ends. It reports whether the channel was closed.
func waitFor(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// openingFor returns a channel for each private key that a proxy waits for. Each channel is closed after the next
// attempt to open the key.
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

// maxReported is the maximum number of log lines for one request of a proxy.
const maxReported = 5

// reportMissing logs the Secrets of the list that are not sent to the proxy, each with the reason.
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
		l.clients.Warn("a proxy is not sent a Secret that it subscribes to", cause, obs.KeyNode, p.Node.ID,
			obs.KeyPeer, p.Node.Peer, obs.KeyName, fmt.Sprintf("%.300q", name), obs.KeyReason, why)
	}
}

// open opens the private keys that resources need, each in a goroutine of its own.
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
			_ = l.call(context.Background(), func() { l.opened(record, key, err) }) // fails only after the loop's end
		}()
	}
}

// opened stores an opened private key. If err is not nil, the previous version of the Secret stays in effect, and
// another attempt follows.
func (l *Loop) opened(record *model.Secret, key model.PrivateKey, err error) {
	if done := l.opening[record.Key]; done != nil {
		defer close(done) // after the set has been published
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
	l.log.Warn("the private key of a Secret cannot be decrypted: proxies that have the Secret keep it, and other proxies wait for it",
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
