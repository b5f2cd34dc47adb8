package expiry

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/attest"
)

// A stream ends when its credential has ended, none that is newer was shown for a grace, and one could have been had
// all that time.
// Promise: security-ca.md#streams-whose-credential-has-ended, security-workloads.md#identity-and-private-keys
func TestExpiry(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	web := func(ends time.Duration) attest.Caller {
		return attest.Caller{ID: spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/web"), NotAfter: begin.Add(ends)}
	}
	const longest = grace + spread
	for name, c := range map[string]struct {
		away  [2]time.Duration // no certificates can be had between these
		shown []attest.Caller
		at    time.Duration
		stays bool
		keys  bool
	}{
		"not ended":                               {at: time.Hour, stays: true, keys: true},
		"ended just now":                          {at: time.Hour + time.Second, stays: true},
		"within the grace":                        {at: time.Hour + grace - time.Second, stays: true},
		"after the grace":                         {at: time.Hour + longest + time.Second},
		"a newer one was shown":                   {at: time.Hour + longest + time.Second, shown: []attest.Caller{web(2 * time.Hour)}, stays: true, keys: true},
		"a newer one that has ended too":          {at: 2*time.Hour + time.Second, shown: []attest.Caller{web(90 * time.Minute)}},
		"an older one was shown":                  {at: time.Hour + longest + time.Second, shown: []attest.Caller{web(time.Minute)}},
		"none can be had":                         {away: [2]time.Duration{0, 10 * time.Hour}, at: 9 * time.Hour, stays: true},
		"none could be had until a while ago":     {away: [2]time.Duration{time.Hour, 3 * time.Hour}, at: 3*time.Hour + grace - time.Minute, stays: true},
		"they can be had again for long":          {away: [2]time.Duration{time.Hour, 3 * time.Hour}, at: 3*time.Hour + longest + time.Minute},
		"they can be had for a moment in between": {away: [2]time.Duration{time.Hour + time.Minute, 3 * time.Hour}, at: 3 * time.Hour, stays: true},
	} {
		e, k := New(), web(time.Hour)
		e.noteCredential(k, begin)
		for _, who := range c.shown {
			e.noteCredential(who, begin)
		}
		for now := time.Duration(0); now <= c.at; now += every {
			e.noteIssuing(begin.Add(now), c.away[1] == 0 || now < c.away[0] || now >= c.away[1])
		}
		if err := e.Refused(k, begin.Add(c.at)); (err == nil) != c.stays {
			t.Errorf("%s: %v", name, err)
		}
		if ended, _ := e.Ended(k, begin.Add(c.at)); ended == c.keys {
			t.Errorf("%s: may have keys %t", name, !ended)
		}
	}
}

// A process that does not know whether certificates can be issued decides by the certificates presented to it: one that
// begins long enough after a credential's end shows that one could be issued. After a long time without any, issuing
// may have resumed this moment, so the first one starts a grace.
// Promise: security-ca.md#processes-without-a-keyring
func TestExpiryByShownCertificates(t *testing.T) {
	begin := time.Unix(1_000_000, 0)
	const longest = grace + spread
	named := func(account string) attest.Caller {
		return attest.Caller{ID: spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/" + account)}
	}
	for name, c := range map[string]struct {
		others []time.Duration // when certificates of others begin, and are shown
		at     time.Duration
		stays  bool
	}{
		"nobody shows any":                     {at: 30 * time.Hour, stays: true},
		"they began before its end":            {others: []time.Duration{50 * time.Minute}, at: 30 * time.Hour, stays: true},
		"they began a moment after its end":    {others: []time.Duration{time.Hour + time.Minute}, at: 30 * time.Hour, stays: true},
		"they began long after its end":        {others: []time.Duration{50 * time.Minute, time.Hour + longest}, at: time.Hour + longest + every},
		"the first for long began just now":    {others: []time.Duration{50 * time.Minute, 9 * time.Hour}, at: 9*time.Hour + grace - time.Second, stays: true},
		"the first for long began a while ago": {others: []time.Duration{50 * time.Minute, 9 * time.Hour}, at: 9*time.Hour + longest + time.Second},
		"one is said to begin in the future":   {others: []time.Duration{50 * time.Minute, 99 * time.Hour}, at: 30 * time.Hour, stays: true},
	} {
		e, web := New(), named("web")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Run(ctx, nil, func() {}); err != nil { // logs the basis of its decisions, and ends
			t.Fatal(err)
		}
		web.NotBefore, web.NotAfter = begin, begin.Add(time.Hour)
		e.noteCredential(web, begin)
		for i, after := range c.others {
			other := named("other" + string(rune('a'+i)))
			other.NotBefore, other.NotAfter = begin.Add(after), begin.Add(after+time.Hour)
			e.noteCredential(other, begin.Add(min(after, 10*time.Hour)))
		}
		if err := e.Refused(web, begin.Add(c.at)); (err == nil) != c.stays {
			t.Errorf("%s: %v", name, err)
		}
		if ended, issuing := e.Ended(web, begin.Add(c.at)); !ended || c.at > 20*time.Hour == !issuing.IsZero() {
			t.Errorf("%s: ended %t, certificates can be had since %v", name, ended, issuing)
		}
		e.noteCredential(attest.Caller{ID: web.ID, NotAfter: begin.Add(100 * time.Hour)}, begin.Add(c.at))
		if err := e.Refused(web, begin.Add(c.at)); err != nil {
			t.Errorf("%s, and it has shown a newer one: %v", name, err)
		}
	}
}

// Streams whose credentials end at the same moment do not end at the same moment; remembered identities expire.
func TestExpiryIsSpread(t *testing.T) {
	e, begin := New(), time.Unix(1_000_000, 0)
	var all []attest.Caller
	for i := range 1000 {
		who := attest.Caller{ID: spiffeid.RequireFromPath(spiffeid.RequireTrustDomainFromString("cluster.local"), "/ns/shop/sa/web"), Pod: string(rune('a' + i)), NotAfter: begin}
		all = append(all, who)
		e.noteCredential(who, begin)
	}
	e.noteIssuing(begin, true)
	half := 0
	for _, who := range all {
		if e.Refused(who, begin.Add(grace+spread/2)) != nil {
			half++
		}
	}
	if half < 300 || half > 700 {
		t.Errorf("%d of 1,000 streams end in the first half of the time", half)
	}
	e.noteIssuing(begin.Add(time.Hour), true)
	if len(e.newest) != 0 {
		t.Errorf("%d identities are remembered", len(e.newest))
	}
	if e.Refused(attest.Caller{ID: all[0].ID}, begin.Add(time.Hour)) != nil {
		t.Error("a credential without a known end has ended")
	}
}

// verified is an authenticator of one caller.
type verified struct {
	who attest.Caller
	err error
}

func (v verified) Authenticate(context.Context) (attest.Caller, error) { return v.who, v.err }

// Only verified credentials are recorded. Every ten seconds the loop checks whether certificates can be issued, and
// then every stream is checked again.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New()
		var mu sync.Mutex // guards the variables below
		can, judged, refused := true, 0, error(nil)
		who := attest.Caller{ID: spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/web"), NotAfter: time.Now().Add(time.Minute)}
		ended := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			ended <- e.Run(ctx, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return can
			}, func() {
				mu.Lock()
				defer mu.Unlock()
				judged++
				refused = e.Refused(who, time.Now())
			})
		}()
		noted := func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.newest)
		}
		if _, err := e.Noting(verified{who, errors.New("its signature is wrong")}).Authenticate(ctx); err == nil || noted() != 0 {
			t.Errorf("what was not verified is noted: %v", err)
		}
		if _, err := e.Noting(verified{who: who}).Authenticate(ctx); err != nil || noted() != 1 {
			t.Errorf("what was verified is not noted: %v", err)
		}
		time.Sleep(time.Minute + grace + spread + 2*every)
		synctest.Wait()
		mu.Lock()
		if want := int((time.Minute + grace + spread + 2*every) / every); judged != want || refused == nil {
			t.Errorf("judged %d times, want %d: %v", judged, want, refused)
		}
		can = false
		mu.Unlock()
		time.Sleep(every)
		synctest.Wait()
		mu.Lock()
		if refused != nil {
			t.Errorf("while none can be had: %v", refused)
		}
		mu.Unlock()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
