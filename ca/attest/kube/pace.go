package kube

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// paces bounds the rate of requests, in total and for each requester. It keeps the limiters of the most recent
// requesters only.
type paces struct {
	all   *rate.Limiter
	each  rate.Limit
	burst int
	known *lru.Cache[string, *rate.Limiter]
}

func newPaces(all *rate.Limiter, each rate.Limit, burst, known int) *paces {
	cache, err := lru.New[string, *rate.Limiter](known)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &paces{all: all, each: each, burst: burst, known: cache}
}

func (p *paces) limiter(who string) *rate.Limiter {
	own := rate.NewLimiter(p.each, p.burst)
	if before, known, _ := p.known.PeekOrAdd(who, own); known {
		p.known.Get(who) // marks the requester as recent
		return before
	}
	return own
}

// wait blocks until the rate limits let a requester proceed. The requester's own limit applies first, so that a busy
// requester does not use up the total. Errors: ctx has ended, or the deadline of ctx is before the end of the wait.
func (p *paces) wait(ctx context.Context, who string) error {
	if err := p.limiter(who).Wait(ctx); err != nil {
		return err
	}
	return p.all.Wait(ctx)
}
