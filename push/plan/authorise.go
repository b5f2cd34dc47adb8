package plan

import (
	"context"
	"errors"
	"time"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/obs"
)

// The limits of queries to the authoriser.
const (
	authoriseBudget = 10 * time.Second // for one query
	maxRightQueries = 16               // at the same time
)

// errNoAuthoriser is the reason why no private keys are sent without an Authoriser.
var errNoAuthoriser = errors.New("this process has no authoriser")

// authorise plans with the known rights of identities to receive private keys. It then decrypts the private keys that
// the plan needs. For unknown or outdated rights it queries the authoriser, in other goroutines.
func (l *Loop) authorise(now time.Time) {
	if l.planner == nil { // after restore has failed
		return
	}
	for _, who := range l.planner.secrets.Doubted() {
		l.access.Doubt(who)
	}
	for _, who := range l.planner.secrets.Unknown() {
		l.notify(l.planner.Authorised(who, l.access.Standing(who, now)))
	}
	rightQueries, wait := l.access.Queries(l.planner.secrets.Rights(), now)
	l.nextAuthorise = now.Add(wait)
	for _, who := range rightQueries {
		go func() {
			answer, err := access.Answer{}, errNoAuthoriser
			if l.cfg.Authoriser != nil {
				if fault := l.guarded(func() { answer, err = l.queryRight(who) }); fault != nil {
					answer, err = access.Answer{}, fault
				}
			}
			_ = l.call(context.Background(), func() { l.authorised(who, answer, err) }) // fails only after the loop's end
		}()
	}
	l.open()
}

// queryRight queries the authoriser for the right of one identity. It waits while maxRightQueries other queries run.
func (l *Loop) queryRight(who view.Identity) (access.Answer, error) {
	l.rightQueries <- struct{}{}
	defer func() { <-l.rightQueries }()
	ctx, cancel := context.WithTimeout(context.Background(), authoriseBudget)
	defer cancel()
	return l.cfg.Authoriser.MayListSecrets(ctx, who)
}

// authorised stores an answer of the authoriser, or its error, and plans with the resulting right. It logs a missing
// right.
func (l *Loop) authorised(who view.Identity, answer access.Answer, err error) {
	now := time.Now()
	if err == nil {
		l.access.Answered(who, answer, now)
	} else {
		l.access.Failed(who, err, now)
		l.clients.Warn("the right of a service account to list Secrets cannot be checked now: "+
			"an earlier positive answer remains valid for a while, and nobody else is sent private keys",
			"", obs.KeyIdentity, who.String(), obs.KeyError, err)
	}
	if l.planner == nil { // after restore has failed
		return
	}
	before, standing := l.planner.secrets.Right(who), l.access.Standing(who, now)
	moved := l.planner.Authorised(who, standing)
	if standing.Known && !standing.Allowed && standing != before {
		l.clients.Warn("proxies of a service account are sent no private keys", "", obs.KeyIdentity, who.String(), obs.KeyReason, standing.Why)
	}
	l.authorise(now)
	l.notify(moved)
	if done := l.deciding[who]; done != nil && standing.Known {
		close(done) // after the set has been published
		delete(l.deciding, who)
	}
}

// decision returns a channel that is closed once the right that a proxy waits for is known. It returns nil if the proxy
// does not wait for a right.
func (l *Loop) decision(p *Proxy) <-chan struct{} {
	id := p.planned.Load().identity
	if id == nil || !id.Undecided() {
		return nil
	}
	who := id.Identity().OfAccount()
	if l.deciding[who] == nil {
		l.deciding[who] = make(chan struct{})
	}
	return l.deciding[who]
}
