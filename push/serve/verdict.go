package serve

import (
	"sync"
	"sync/atomic"
	"time"

	"navarch.io/navarch/push/xds"
)

// Verdicts decide when a version that some proxies refused is withheld from a whole view.
type Verdicts interface {
	// Refuse takes note of a refusal whose culprit is known.
	Refuse(Refusal)
	// Refused says whether a version is withheld from a view. It is called for every resource that is sent: fast.
	Refused(view string, r *xds.Resource) bool
}

// MemoryVerdicts are the verdicts of one process: a version is withheld from a view once several distinct identities
// refused it, until a time has passed since the last refusal.
type MemoryVerdicts struct {
	quorum int
	ttl    time.Duration
	now    func() time.Time

	count atomic.Int32 // of verdicts; 0 makes Refused free
	mu    sync.Mutex   // a leaf
	cases map[accused]*trial
	swept time.Time
}

type accused struct {
	view, name, version string
	kind                xds.Type
}

type trial struct {
	witnesses map[string]bool // at most quorum
	last      time.Time
	guilty    bool
}

// maxCases bounds what is remembered: refusals come from outside.
const maxCases = 4096

// NewVerdicts makes verdicts: quorum 0 is 3 identities, ttl 0 is 10 minutes, now nil is time.Now.
func NewVerdicts(quorum int, ttl time.Duration, now func() time.Time) *MemoryVerdicts {
	if quorum <= 0 {
		quorum = 3
	}
	if ttl <= 0 {
		ttl = 10 * time.Minute
	}
	if now == nil {
		now = time.Now
	}
	return &MemoryVerdicts{quorum: quorum, ttl: ttl, now: now, cases: map[accused]*trial{}}
}

// Refuse takes note of a refusal, as of r.At (zero: now). A proxy without an identity counts by its node: on plain text
// there is nothing better.
func (v *MemoryVerdicts) Refuse(r Refusal) {
	witness := r.Identity
	if witness == "" {
		witness = "node:" + r.Node
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.now()
	at := r.At
	if at.IsZero() || at.After(now) {
		at = now
	}
	if now.Sub(at) >= v.ttl {
		return
	}
	if wait := v.ttl / 20; now.Sub(v.swept) >= wait || len(v.cases) >= maxCases && now.Sub(v.swept) >= min(wait, time.Second) {
		v.sweep(now)
	}
	key := accused{r.View, r.Name, r.Version, r.Type}
	c := v.cases[key]
	if c != nil && now.Sub(c.last) >= v.ttl {
		v.forget(key, c)
		c = nil
	}
	if c == nil {
		if len(v.cases) >= maxCases {
			return
		}
		c = &trial{witnesses: map[string]bool{}}
		v.cases[key] = c
	}
	if at.After(c.last) {
		c.last = at
	}
	if len(c.witnesses) < v.quorum {
		c.witnesses[witness] = true
	}
	if !c.guilty && len(c.witnesses) >= v.quorum {
		c.guilty = true
		v.count.Add(1)
	}
}

// Refused says whether a version is withheld from a view.
func (v *MemoryVerdicts) Refused(view string, r *xds.Resource) bool {
	if v.count.Load() == 0 {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.cases[accused{view, r.Name, r.Version, r.Type}]
	return c != nil && c.guilty && v.now().Sub(c.last) < v.ttl
}

// sweep forgets what is over.
func (v *MemoryVerdicts) sweep(now time.Time) {
	v.swept = now
	for key, c := range v.cases {
		if now.Sub(c.last) >= v.ttl {
			v.forget(key, c)
		}
	}
}

func (v *MemoryVerdicts) forget(key accused, c *trial) {
	if c.guilty {
		v.count.Add(-1)
	}
	delete(v.cases, key)
}
