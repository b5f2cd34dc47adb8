package kube

import (
	"context"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// paces bounds how often something is asked, in all and for each of those for whom it is. Of those who asked longest ago the pace is
// forgotten.
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

func (p *paces) of(who string) *rate.Limiter {
	own := rate.NewLimiter(p.each, p.burst)
	if before, known, _ := p.known.PeekOrAdd(who, own); known {
		p.known.Get(who) // it is among those who asked last
		return before
	}
	return own
}

// wait returns when it is somebody's turn, first by their own pace, so that who asks much takes nobody's place. An error: the context ends
// before that.
func (p *paces) wait(ctx context.Context, who string) error {
	if err := p.of(who).Wait(ctx); err != nil {
		return err
	}
	return p.all.Wait(ctx)
}
