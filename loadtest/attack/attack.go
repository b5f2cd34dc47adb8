// Package attack simulates a hostile neighbour of a control plane on this machine. It attacks a gRPC address, without a
// credential and with the stolen credential of one workload, and counts the results of its tries. It is for measuring
// one's own server (`make load S=hostile`): addresses that are not loopback are refused.
//
// Owns: its connections. Reads: answers, to learn how a try ended. Never: connects to an address that is not loopback;
// opens more connections at once than Config.Connections.
package attack

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config contains the targets of the attacks and the attacker's credential. A field that is zero has its default.
type Config struct {
	Addr string // host:port of gRPC over TLS; the host is an IP address of loopback
	From string // IP address of loopback that connections come from; empty: the kernel chooses
	// Certificate and Token are the credential of one workload. Nil: only attacks without a credential are carried out.
	Certificate *tls.Certificate
	Token       string
	// Identity is the workload's identity, "namespace/service account". Victim is a proxy of another identity,
	// "namespace/service account/pod".
	Identity, Victim string
	Proxy            string // a proxy of the identity, NAME.NAMESPACE, for requests about it; empty: unknown
	Group            string // WorkloadGroup of the identity, for machines that register themselves; empty: "vms"
	// Pages is the host:port of HTTP with /debug, on loopback; empty: it is not attacked.
	Pages string
	// Webhooks is the host:port of admission webhooks over TLS, on loopback; empty: they are not attacked.
	Webhooks string

	Only        []string      // names of attacks; empty: all
	Connections int           // concurrent connections of all attacks together: 1,500, which is also the maximum
	Even        bool          // all attacks have the same number of connections, whatever their shares
	Names       int           // names that a stream subscribes to, or claims versions of: 200,000
	Hold        time.Duration // time after which an open connection is closed: 20 s
	Pause       time.Duration // time between two steps of one connection, and between two connections: 20 ms
}

// Attack is one kind of attack.
type Attack struct {
	Name       string
	Share      int  // connections out of MaxConnections
	Credential bool // the attack needs the credential
	// once makes one try, with one connection at a time. It ends with its context, and returns the result of the try: a
	// gRPC code or one of a few words.
	once func(context.Context, *attacker) string
}

// MaxConnections and MinConnections are the bounds of Config.Connections: each attack has at least one connection.
const (
	MaxConnections = 1500
	MinConnections = 64
)

// Results of a try, beside gRPC's codes.
const (
	kept         = "kept"          // the attacker closed it at the end
	closed       = "closed"        // the server closed it
	noConnection = "no connection" // the TCP or TLS connection failed
	answered     = "answered"
)

// All returns all attacks.
func All() []Attack {
	return []Attack{
		{Name: "silent", Share: 230, once: silent},
		{Name: "trickle", Share: 250, once: trickle},
		{Name: "hello", Share: 250, once: hello},
		{Name: "headers", Share: 50, once: headers},
		{Name: "names", Share: 20, Credential: true, once: names},
		{Name: "nodes", Share: 20, Credential: true, once: nodes},
		{Name: "metadata", Share: 40, Credential: true, once: largeNode},
		{Name: "nacks", Share: 50, Credential: true, once: nacks},
		{Name: "versions", Share: 40, Credential: true, once: versions},
		{Name: "csrs", Share: 50, Credential: true, once: csrs},
		{Name: "mints", Share: 100, Credential: true, once: mints},
		{Name: "reconnects", Share: 100, Credential: true, once: reconnects},
		{Name: Impersonation, Share: 50, Credential: true, once: impersonate},
		{Name: "questions", Share: 30, Credential: true, once: questions},
		{Name: "unended-streams", Share: 20, Credential: true, once: unendedStreams},
		{Name: "unended-requests", Share: 20, Credential: true, once: unendedRequests},
		{Name: "resets", Share: 10, Credential: true, once: resets},
		{Name: "secrets", Share: 20, Credential: true, once: secrets},
		{Name: "holders", Share: 20, Credential: true, once: holders},
		{Name: "machines", Share: 30, Credential: true, once: machines},
		{Name: pagesAttack, Share: 30, Credential: true, once: pages},
		{Name: ReviewsHeavy, Share: 10, once: heavyReviews},
		{Name: ReviewsPods, Share: 10, once: largeReviews},
		{Name: ReviewsWrong, Share: 15, once: wrongReviews},
		{Name: ReviewsSlow, Share: 8, once: slowReviews},
		{Name: ReviewsSubnets, Share: 10, once: subnetReviews},
		{Name: ReviewsHalf, Share: 7, once: halfReviews},
		{Name: ReviewsLimits, Share: 10, once: limitReviews},
	}
}

// Impersonation is the name of the attack that poses as a proxy of another identity: none of its tries may be answered.
const Impersonation = "impersonation"

// Count contains the counts of one attack.
type Count struct {
	Tried    uint64            `json:"tried"`
	Came     map[string]uint64 `json:"came"`     // tries that have ended, by result
	Requests uint64            `json:"requests"` // requests sent on streams
	Answers  uint64            `json:"answers"`  // responses to these requests
}

func (c Count) String() string {
	var parts []string
	for _, how := range slices.Sorted(maps.Keys(c.Came)) {
		parts = append(parts, fmt.Sprintf("%s %d", how, c.Came[how]))
	}
	text := fmt.Sprintf("%d tries (%s)", c.Tried, strings.Join(parts, ", "))
	if c.Requests > 0 {
		text += fmt.Sprintf(", %d requests, %d answers", c.Requests, c.Answers)
	}
	return text
}

// Tally contains the counts by attack. The zero Tally is ready for use, by any goroutine.
type Tally struct {
	mu  sync.Mutex
	all map[string]*Count
}

// MarshalJSON returns the counts as an object by attack name. The error is nil.
func (t *Tally) MarshalJSON() ([]byte, error) { return json.Marshal(t.Counts()) }

// Counts returns a copy of the counts, by attack name.
func (t *Tally) Counts() map[string]Count {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]Count{}
	for name, c := range t.all {
		one := *c
		one.Came = maps.Clone(c.Came)
		all[name] = one
	}
	return all
}

// change applies f to the count of one attack.
func (t *Tally) change(name string, f func(*Count)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]*Count{}
	}
	if t.all[name] == nil {
		t.all[name] = &Count{Came: map[string]uint64{}}
	}
	f(t.all[name])
}

// Run attacks until ctx ends, and counts into t. It returns once all connections are closed. The error names the
// settings of Config that are not possible; nothing is attacked then.
func Run(ctx context.Context, c Config, t *Tally) error {
	if err := c.complete(); err != nil {
		return err
	}
	first, err := clientHello()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, a := range All() {
		if !c.chooses(a) {
			continue
		}
		for i := range c.share(a) {
			w := &attacker{Config: c, attack: a, index: i, tally: t, hello: first}
			all.Go(func() { w.run(ctx) })
		}
	}
	all.Wait()
	return nil
}

// share returns the number of connections of an attack.
func (c *Config) share(a Attack) int {
	if !c.Even {
		return max(1, a.Share*c.Connections/MaxConnections)
	}
	chosen := 0
	for _, other := range All() {
		if c.chooses(other) {
			chosen++
		}
	}
	return max(1, c.Connections/chosen)
}

// chooses reports whether an attack is carried out.
func (c *Config) chooses(a Attack) bool {
	return (c.Certificate != nil || !a.Credential) && (c.Pages != "" || a.Name != pagesAttack) &&
		(c.Webhooks != "" || !slices.Contains(ReviewAttacks, a.Name)) && (len(c.Only) == 0 || slices.Contains(c.Only, a.Name))
}

// complete validates the settings and sets defaults. Errors name the settings.
func (c *Config) complete() error {
	c.Connections = cmp.Or(c.Connections, MaxConnections)
	c.Names = cmp.Or(c.Names, 200_000)
	c.Hold = cmp.Or(c.Hold, 20*time.Second)
	c.Pause = cmp.Or(c.Pause, 20*time.Millisecond)
	c.Group = cmp.Or(c.Group, "vms")
	err := errors.Join(loopback(c.Addr), from(c.From))
	for _, other := range []string{c.Pages, c.Webhooks} {
		if other != "" {
			err = errors.Join(err, loopback(other))
		}
	}
	for _, name := range c.Only {
		if !slices.ContainsFunc(All(), func(a Attack) bool { return a.Name == name }) {
			err = errors.Join(err, fmt.Errorf("there is no attack %q", name))
		}
	}
	if c.Connections < MinConnections || c.Connections > MaxConnections {
		err = errors.Join(err, fmt.Errorf("%d connections: %d to %d are possible", c.Connections, MinConnections, MaxConnections))
	}
	if c.Certificate != nil && (strings.Count(c.Identity, "/") != 1 || strings.Count(c.Victim, "/") != 2 || c.Token == "") {
		err = errors.Join(err,
			errors.New("with a certificate there must be a token, the identity as namespace/account, and a victim as namespace/account/pod"))
	}
	return err
}

// loopback returns an error for an address that is not a loopback IP address with a port: a name could resolve to any
// address.
func loopback(addr string) error {
	to, err := netip.ParseAddrPort(addr)
	if err != nil || !to.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("%q is no IP address of loopback with a port: nothing else is attacked", addr)
	}
	return nil
}

// from returns an error for a text that is neither empty nor a loopback IP address.
func from(ip string) error {
	if ip == "" {
		return nil
	}
	return loopback(net.JoinHostPort(ip, "1"))
}

// attacker is one worker of an attack. It has one connection at a time.
type attacker struct {
	Config
	attack Attack
	index  int // number within its attack
	tries  int
	tally  *Tally
	hello  []byte // the first message of a client in a TLS handshake
}

func (w *attacker) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.tries++
		w.count(func(c *Count) { c.Tried++ })
		once, cancel := context.WithTimeout(ctx, w.Hold)
		came := w.attack.once(once, w)
		cancel()
		w.count(func(c *Count) { c.Came[came]++ })
		w.pause(ctx)
	}
}

func (w *attacker) count(f func(*Count)) { w.tally.change(w.attack.Name, f) }

// pause waits for Config.Pause; false: the context has ended.
func (w *attacker) pause(ctx context.Context) bool {
	timer := time.NewTimer(w.Pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// identity returns the namespace and service account of the stolen credential.
func (w *attacker) identity() (namespace, account string) {
	namespace, account, _ = strings.Cut(w.Identity, "/")
	return namespace, account
}
