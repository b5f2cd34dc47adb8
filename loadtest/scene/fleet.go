package scene

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/attack"
	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
)

// Spec describes a fleet in a form that can be sent to another process.
type Spec struct {
	Addrs        []string      `json:"addrs"`
	TLS          TLS           `json:"tls,omitzero"` // zero: plain text
	Header       [][2]string   `json:"header,omitempty"`
	Stock        bool          `json:"stock,omitempty"` // nodes as large as a stock Envoy's
	IstioVersion string        `json:"istio_version,omitempty"`
	Sample       float64       `json:"sample,omitempty"`
	SotW         float64       `json:"sotw,omitempty"`      // share of proxies that use state of the world
	JoinRate     float64       `json:"join_rate,omitempty"` // proxies a second, in each process
	Dialing      int           `json:"dialing,omitempty"`
	BackOff      time.Duration `json:"back_off,omitempty"`
	MaxBackOff   time.Duration `json:"max_back_off,omitempty"`
	Follow       bool          `json:"follow,omitempty"` // move to the owner, as navarch-agent does
	// WarmTimeout is the longest wait of a cluster or listener before it is a violation.
	WarmTimeout time.Duration `json:"warm_timeout,omitempty"`
}

// Select selects proxies; the zero Select selects all.
type Select struct {
	Share      float64  `json:"share,omitempty"`     // the first part of each process's proxies (0 to 1, rounded up); 0: all
	Namespaces []string `json:"namespaces,omitzero"` // nil: all namespaces; empty and not nil: no proxy
	Workload   string   `json:"workload,omitempty"`
	Pods       []string `json:"pods,omitzero"`
	Not        []string `json:"not,omitempty"` // Pods to exclude
}

// matcher returns the Select as a function for a fleet of n proxies.
func (s Select) matcher(n int) func(int, proxy.Identity) bool {
	first := n
	if s.Share > 0 {
		first = min(n, max(1, int(s.Share*float64(n)+.999999)))
	}
	return func(i int, id proxy.Identity) bool {
		return i < first && (s.Namespaces == nil || slices.Contains(s.Namespaces, id.Namespace)) &&
			(s.Workload == "" || s.Workload == id.Workload) &&
			(s.Pods == nil || slices.Contains(s.Pods, id.Name)) && !slices.Contains(s.Not, id.Name)
	}
}

// Watch is a proxy.Change in a form that can be sent to another process.
type Watch struct {
	Type   xds.Type `json:"type"`
	Name   string   `json:"name"`
	Marker string   `json:"marker,omitempty"`
	Gone   bool     `json:"gone,omitempty"`
	Among  Select   `json:"among,omitzero"`
}

// Fleet is a fleet of proxies, in this process or in several. Errors are those of the processes.
type Fleet interface {
	Add(ids []proxy.Identity) error
	Remove(Select) error
	// WaitJoined waits until all proxies are joined.
	WaitJoined(context.Context) error
	Stats() (proxy.Stats, error)
	// Watch begins to wait for several changes at once.
	Watch([]Watch) (Probe, error)
	Reconnect(Select, proxy.Reconnect) error
	Behave(Select, proxy.Behaviour) error
	// CheckEqual returns the number of proxies that differ from another proxy of their View.
	CheckEqual() (int, error)
	// Footprint returns the resident memory of the proxies in bytes: of their processes after a garbage collection, minus
	// the memory before the first proxy.
	Footprint() (uint64, error)
	// PIDs returns the processes that run the proxies.
	PIDs() []int
	// Trusting returns the number of proxies that hold the newest roots that their CA has pushed. The error is that of an
	// agent's request to the CA.
	Trusting() (int, error)
	// Certified counts the identities by the id of the key that signed their certificates.
	Certified() (map[string]int, error)
	// Renew makes every identity request a new certificate from the CA at its next dial.
	Renew() error
	Close() error
}

// Probe waits for the changes of a Watch.
type Probe interface {
	// Await returns when all proxies have acknowledged, or when ctx ends; Outcome reports which.
	Await(context.Context) error
	// Outcome ends the probe; times are relative to `committed`.
	Outcome(committed time.Time) (proxy.Outcome, error)
}

// local is a fleet in this process. Its methods implement Fleet.
type local struct {
	fleet *proxy.Fleet
	base  uint64     // resident memory before the first proxy, in bytes
	certs *certifier // nil: no CA
	mu    sync.Mutex
	n     int // number of proxies added so far
}

// dangling reports whether routes may name a cluster that does not exist: a missing destination of a gateway's routes,
// or a cluster of an attacker's namespace, for whose Services there may be no room.
func dangling(cluster string) bool {
	return mesh.Missing(cluster) || strings.HasSuffix(cluster, "."+attack.TenantNamespace+".svc.cluster.local")
}

// newLocal makes a fleet in this process.
func newLocal(s Spec) (*local, error) {
	conf := proxy.Config{Addrs: s.Addrs, IstioVersion: s.IstioVersion, Sample: s.Sample, SotW: s.SotW, JoinRate: s.JoinRate, Dialing: s.Dialing,
		BackOff: s.BackOff, MaxBackOff: s.MaxBackOff, Follow: s.Follow, WarmTimeout: s.WarmTimeout, Dangling: dangling}
	if s.Stock {
		conf.Node = proxy.Stock
	}
	if len(s.Header) > 0 {
		conf.Header = func(proxy.Identity) [][2]string { return s.Header }
	}
	var err error
	var certs *certifier
	if s.TLS.Authority != nil {
		if certs, err = newCertifier(*s.TLS.Authority); err != nil {
			return nil, err
		}
		conf.TLS, conf.Trust, conf.OnTrust = certs.client, true, certs.trust
	} else if conf.TLS, err = s.TLS.client(); err != nil {
		return nil, err
	}
	fleet, err := proxy.New(conf)
	if err != nil {
		return nil, err
	}
	base, err := collected()
	if err != nil {
		fleet.Close()
		return nil, err
	}
	return &local{fleet: fleet, base: base, certs: certs}, nil
}

// collected returns the resident memory of this process without garbage. Pools are emptied by the second collection.
func collected() (uint64, error) {
	runtime.GC()
	debug.FreeOSMemory()
	p, err := gauge.ReadProcess(os.Getpid())
	return p.RSS, err
}

func (l *local) Footprint() (uint64, error) {
	now, err := collected()
	return now - min(now, l.base), err
}

func (l *local) PIDs() []int { return []int{os.Getpid()} }

func (l *local) Trusting() (int, error) {
	if l.certs == nil {
		return 0, errNoAuthority
	}
	return l.certs.trusting()
}

func (l *local) Certified() (map[string]int, error) {
	if l.certs == nil {
		return nil, errNoAuthority
	}
	return l.certs.certified()
}

func (l *local) Renew() error {
	if l.certs == nil {
		return errNoAuthority
	}
	l.certs.renew()
	return nil
}

var errNoAuthority = errors.New("the proxies have no CA")

func (l *local) Add(ids []proxy.Identity) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += len(ids)
	l.fleet.Add(ids...)
	return nil
}

// matcher selects from all proxies that were ever added.
func (l *local) matcher(s Select) func(int, proxy.Identity) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return s.matcher(l.n)
}

func (l *local) Remove(s Select) error { l.fleet.Remove(l.matcher(s)); return nil }

func (l *local) WaitJoined(ctx context.Context) error {
	return l.fleet.WaitJoined(ctx, l.fleet.Stats().Proxies)
}

func (l *local) Stats() (proxy.Stats, error) { return l.fleet.Stats(), nil }

func (l *local) Reconnect(s Select, r proxy.Reconnect) error {
	l.fleet.Reconnect(l.matcher(s), r)
	return nil
}

func (l *local) Behave(s Select, b proxy.Behaviour) error {
	l.fleet.SetBehaviour(l.matcher(s), b)
	return nil
}

func (l *local) CheckEqual() (int, error) { return l.fleet.CheckEqual(), nil }
func (l *local) Close() error             { l.fleet.Close(); return nil }

func (l *local) Watch(all []Watch) (Probe, error) {
	p := localProbe{}
	for _, w := range all {
		c := proxy.Change{Type: w.Type, Name: w.Name, Marker: w.Marker, Gone: w.Gone}
		if w.Among.Namespaces != nil || w.Among.Workload != "" || w.Among.Pods != nil || w.Among.Not != nil || w.Among.Share > 0 {
			if w.Among.Share > 0 {
				return nil, fmt.Errorf("watch %s: a share of the proxies cannot be watched; name their pods", w.Name)
			}
			match := w.Among.matcher(1)
			c.Among = func(id proxy.Identity) bool { return match(0, id) }
		}
		p = append(p, l.fleet.Watch(c))
	}
	return p, nil
}

type localProbe []*proxy.Probe

func (p localProbe) Await(ctx context.Context) error {
	for _, one := range p {
		select {
		case <-one.Done():
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func (p localProbe) Outcome(committed time.Time) (proxy.Outcome, error) {
	over, cancel := context.WithCancel(context.Background())
	cancel() // the changes have arrived, or will not
	sum := proxy.Outcome{}
	for _, one := range p {
		one.Committed(committed)
		sum.Merge(one.Wait(over))
	}
	return sum, nil
}
