package dns

import (
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/miekg/dns"
)

// The bounds of the cache. Its answers use 512 KiB at most.
const (
	maxCached     = 256              // answers
	maxCachedSize = 2048             // bytes of one answer
	maxCachedFor  = 30 * time.Second // upper limit of the time in the cache, so that changed records are noticed soon
)

// cache contains recent answers of DNS servers. Any goroutine may use it.
type cache struct {
	answers *lru.Cache[key, cached]
	now     func() time.Time
}

// key contains the parts of a query that its answer depends on.
type key struct {
	name        string
	kind, class uint16
	edns, do    bool
	cd, rd      bool
}

// cached is one encoded answer, the time of its arrival and the time of its expiry.
type cached struct {
	message    []byte
	came, ends time.Time
}

// newCache returns an empty cache with the clock of the system.
func newCache() *cache {
	answers, _ := lru.New[key, cached](maxCached) // a size above 0
	return &cache{answers: answers, now: time.Now}
}

// keyOf returns the cache key of a query, which must have a question. It returns false for a query with EDNS options.
// The answer to such a query may be valid for this client only (for example, by client subnet) and must not be stored.
func keyOf(query *dns.Msg) (key, bool) {
	q := query.Question[0]
	k := key{name: strings.ToLower(q.Name), kind: q.Qtype, class: q.Qclass, cd: query.CheckingDisabled, rd: query.RecursionDesired}
	if opt := query.IsEdns0(); opt != nil {
		k.edns, k.do = true, opt.Do()
		return k, len(opt.Option) == 0
	}
	return k, true
}

// get returns a copy of the stored answer, with the ID and question of query. The TTLs are reduced by the age of the
// answer. It returns nil if no answer is stored or the stored answer has expired.
func (c *cache) get(k key, query *dns.Msg) *dns.Msg {
	found, is := c.answers.Get(k)
	if !is {
		return nil
	}
	now := c.now()
	if !now.Before(found.ends) {
		c.answers.Remove(k)
		return nil
	}
	reply := new(dns.Msg)
	if reply.Unpack(found.message) != nil { // cannot fail: put packed it
		return nil
	}
	reply.Id, reply.Question = query.Id, query.Question // with the client's spelling of the name
	age := uint32(now.Sub(found.came) / time.Second)
	for _, section := range [][]dns.RR{reply.Answer, reply.Ns, reply.Extra} {
		for _, r := range section {
			if h := r.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl -= min(h.Ttl, age)
			}
		}
	}
	return reply
}

// put stores an answer for its lifetime, limited to maxCachedFor. An answer with lifetime zero, or above maxCachedSize,
// is not stored.
func (c *cache) put(k key, reply *dns.Msg) {
	lasts := min(lifetime(reply), maxCachedFor)
	if lasts <= 0 || reply.Len() > maxCachedSize {
		return
	}
	if message, err := reply.Pack(); err == nil {
		now := c.now()
		c.answers.Add(k, cached{message: message, came: now, ends: now.Add(lasts)})
	}
}

// lifetime returns the time for which an answer may be stored. For a positive answer this is the least TTL of its
// answer section. For an empty or NXDOMAIN answer it is also limited by the SOA record (RFC 2308 section 5). Zero means
// that the answer must not be stored. The reasons are: the answer is truncated, has a response code other than NOERROR
// and NXDOMAIN, is negative without an SOA record, or has a TTL of zero.
func lifetime(reply *dns.Msg) time.Duration {
	if reply.Truncated || reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		return 0
	}
	least, known := uint32(0), false
	note := func(seconds uint32) {
		if !known || seconds < least {
			least, known = seconds, true
		}
	}
	for _, r := range reply.Answer {
		note(r.Header().Ttl)
	}
	if reply.Rcode == dns.RcodeNameError || len(reply.Answer) == 0 {
		soa := false
		for _, r := range reply.Ns {
			if s, is := r.(*dns.SOA); is {
				soa = true
				note(min(s.Hdr.Ttl, s.Minttl))
			}
		}
		if !soa {
			return 0
		}
	}
	return time.Duration(least) * time.Second
}
