package dns

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func asks(name string, kind uint16) *dns.Msg {
	m := new(dns.Msg)
	m.SetQuestion(name, kind)
	return m
}

func replies(query *dns.Msg, code int, records ...string) *dns.Msg {
	m := new(dns.Msg)
	m.SetRcode(query, code)
	for _, text := range records {
		if r := rr(text); r.Header().Rrtype == dns.TypeSOA {
			m.Ns = append(m.Ns, r)
		} else {
			m.Answer = append(m.Answer, r)
		}
	}
	return m
}

// An answer is stored for the time of its records or of its SOA record, up to the limit. Clients see the remaining
// time.
func TestCacheKeepsWhatStands(t *testing.T) {
	now := time.Unix(0, 0)
	c := newCache()
	c.now = func() time.Time { return now }
	q := asks("a.org.", dns.TypeA)
	for _, test := range []struct {
		what  string
		reply *dns.Msg
		lasts time.Duration
	}{
		{"the least of its records", replies(q, dns.RcodeSuccess, "a.org. 20 IN A 192.0.2.1", "a.org. 10 IN A 192.0.2.2"), 10 * time.Second},
		{"the bound", replies(q, dns.RcodeSuccess, "a.org. 3600 IN A 192.0.2.1"), maxCachedFor},
		{"no record, by SOA", replies(q, dns.RcodeSuccess, "org. 20 IN SOA n. a. 1 1 1 1 5"), 5 * time.Second},
		{"no such name, by SOA", replies(q, dns.RcodeNameError, "org. 7 IN SOA n. a. 1 1 1 1 60"), 7 * time.Second},
		{"no such name, without SOA", replies(q, dns.RcodeNameError), 0},
		{"a record for now only", replies(q, dns.RcodeSuccess, "a.org. 0 IN A 192.0.2.1"), 0},
		{"a failure", replies(q, dns.RcodeServerFailure), 0},
		{"a long answer", replies(q, dns.RcodeSuccess, "a.org. 60 IN TXT \""+strings.Repeat("x", 250)+"\""+strings.Repeat(" \""+strings.Repeat("y", 250)+"\"", 9)), 0},
	} {
		k, ok := keyOf(q)
		if !ok {
			t.Fatal("a plain query")
		}
		c.answers.Purge()
		c.put(k, test.reply)
		if test.lasts == 0 {
			if c.answers.Len() != 0 {
				t.Errorf("%s is kept", test.what)
			}
			continue
		}
		now = now.Add(test.lasts - time.Second)
		again := asks("A.org.", dns.TypeA)
		got := c.get(k, again)
		if got == nil || got.Id != again.Id || got.Question[0].Name != "A.org." {
			t.Errorf("%s: %v", test.what, got)
			continue
		}
		for _, r := range append(got.Answer, got.Ns...) {
			for _, was := range append(test.reply.Answer, test.reply.Ns...) {
				if fmt.Sprint(r) == fmt.Sprint(was) && test.lasts > time.Second {
					t.Errorf("%s: %v has not aged", test.what, r)
				}
			}
		}
		if now = now.Add(time.Second); c.get(k, again) != nil {
			t.Errorf("%s: stands longer than %s", test.what, test.lasts)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache()
	for i := range 2 * maxCached {
		q := asks(fmt.Sprintf("a%d.org.", i), dns.TypeA)
		k, _ := keyOf(q)
		c.put(k, replies(q, dns.RcodeSuccess, q.Question[0].Name+" 60 IN A 192.0.2.1"))
	}
	if n := c.answers.Len(); n != maxCached {
		t.Errorf("%d answers are kept", n)
	}
}

// Queries that may have different answers do not share one; an answer to a query with EDNS options is not stored.
func TestKeys(t *testing.T) {
	plain := asks("a.org.", dns.TypeA)
	kind, class, checking, recursion, edns, dnssec := asks("a.org.", dns.TypeAAAA), asks("a.org.", dns.TypeA), asks("a.org.", dns.TypeA), asks("a.org.", dns.TypeA), asks("a.org.", dns.TypeA), asks("a.org.", dns.TypeA)
	class.Question[0].Qclass, checking.CheckingDisabled, recursion.RecursionDesired = dns.ClassCHAOS, true, false
	edns.SetEdns0(1232, false)
	dnssec.SetEdns0(1232, true)
	seen := map[key]bool{}
	for _, q := range []*dns.Msg{plain, kind, class, checking, recursion, edns, dnssec} {
		k, ok := keyOf(q)
		if seen[k] || !ok {
			t.Errorf("%v: %+v, may be kept %t", q, k, ok)
		}
		seen[k] = true
	}
	if k, _ := keyOf(asks("A.ORG.", dns.TypeA)); !seen[k] {
		t.Error("case matters")
	}
	edns.IsEdns0().Option = append(edns.IsEdns0().Option, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "24a5ac1122334455"})
	if _, ok := keyOf(edns); ok {
		t.Error("an answer for one client is kept for others")
	}
}
