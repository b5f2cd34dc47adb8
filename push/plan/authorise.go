package plan

import (
	"context"
	"errors"
	"time"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/obs"
)

// The bounds of asking the authoriser.
const (
	authoriseBudget = 10 * time.Second // of one question
	maxQuestions    = 16               // at once
)

// errNoAuthoriser is why nobody has private keys where there is no Authoriser.
var errNoAuthoriser = errors.New("this process has no authoriser")

// authorise asks the authoriser, outside of the loop, about identities whose rights are not known, or were asked for too long ago, and plans
// with the rights of the others. Private keys that are needed for that are opened.
func (l *Loop) authorise(now time.Time) {
	if l.planner == nil { // see restore
		return
	}
	for _, who := range l.planner.secrets.Doubted() {
		l.access.Doubt(who)
	}
	for _, who := range l.planner.secrets.Unknown() {
		l.notify(l.planner.Authorised(who, l.access.Standing(who, now)))
	}
	questions, wait := l.access.Ask(l.planner.secrets.Rights(), now)
	l.askAgain = now.Add(wait)
	for _, who := range questions {
		go func() {
			answer, err := access.Answer{}, errNoAuthoriser
			if l.cfg.Authoriser != nil {
				if fault := l.guarded(func() { answer, err = l.question(who) }); fault != nil {
					answer, err = access.Answer{}, fault
				}
			}
			_ = l.call(context.Background(), func() { l.authorised(who, answer, err) }) // an ended loop has no proxies
		}()
	}
	l.open()
}

func (l *Loop) question(who view.Identity) (access.Answer, error) {
	l.questions <- struct{}{}
	defer func() { <-l.questions }()
	ctx, cancel := context.WithTimeout(context.Background(), authoriseBudget)
	defer cancel()
	return l.cfg.Authoriser.MayListSecrets(ctx, who)
}

// authorised takes an answer, or why there is none, and tells an operator of rights that are not given.
func (l *Loop) authorised(who view.Identity, answer access.Answer, err error) {
	now := time.Now()
	if err == nil {
		l.access.Answered(who, answer, now)
	} else {
		l.access.Failed(who, err, now)
		l.clients.Warn("whether a service account may list Secrets cannot be checked now: an earlier yes remains valid for a while, and nobody else is sent private keys",
			"", obs.KeyIdentity, who.String(), obs.KeyError, err)
	}
	if l.planner == nil { // see restore
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
		close(done) // after the set says so
		delete(l.deciding, who)
	}
}

// decision is closed once the right is known that a proxy waits for; nil: it waits for none.
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
