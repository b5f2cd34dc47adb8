// Package webhooks follows the webhook configurations of a cluster. It reports whether the API server would trust a
// certificate that this process presents. While this process leads, it writes the mesh's roots into the configurations.
//
// Owns: the known configurations, and the results of dry runs.
// Reads: validating and mutating webhook configurations, the mesh's roots.
// Never: writes while this process does not lead; creates a configuration.
package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/store/admit/configure"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/status"
)

// Config configures New. Roots and Log are required.
type Config struct {
	Kubeconfig          string // empty: the service account of the Pod
	Namespace, Revision string // of this control plane; both select its configurations; empty Revision: default
	// Roots returns the roots that the mesh trusts; empty: unknown. It is called concurrently, and its result is only
	// read.
	Roots func() []*x509.Certificate
	// Foreign states that the operator writes the roots (--write-webhook-configurations=false). Trusts then ignores
	// configurations without any root of the mesh.
	Foreign bool
	Log     *slog.Logger
}

// Configurations has the last known webhook configurations of a cluster. Make it with New. Safe for concurrent use.
type Configurations struct {
	Config
	apis map[status.WebhookKind]*status.Webhooks

	settle time.Duration // age of a configuration at which API servers use it

	mu      sync.Mutex // a leaf lock; guards the fields below
	kinds   map[status.WebhookKind]*kind
	changed chan struct{}
	lately  map[string]lateRoot // the mesh's present and recent roots, by their encoding
}

// kind is the state of one kind of configuration, validating or mutating.
type kind struct {
	there  map[status.Key]status.Found[unstructured.Unstructured] // nil: this kind was never listed
	since  map[status.Key]standing
	failed error // why configurations of this kind cannot be read now
}

// standing is the present generation of a configuration, and the time at which this process first saw it.
type standing struct {
	generation int64
	at         time.Time
}

// lateRoot is a root, and the last time at which this process saw that the mesh trusts it.
type lateRoot struct {
	*x509.Certificate
	at time.Time
}

const (
	// settled is the time until API servers use a configuration that this process has seen. Each API server follows
	// configurations by itself. A measurement under load gave one second.
	settled = 3 * time.Second
	// overlap is the time for which a root stays in configurations after the mesh has dropped it. Replicas present a
	// certificate of the old root until API servers have the new root.
	overlap = time.Minute
	// looks is the interval at which every process reads the mesh's roots. A process that becomes leader must know the
	// recent roots.
	looks = time.Second
)

var kinds = []status.WebhookKind{status.Validating, status.Mutating}

// New returns Configurations without content, which Run fills. It sends no request. The error reports that the
// kubeconfig is invalid, or that it is empty outside of a Pod.
func New(c Config) (*Configurations, error) {
	all := &Configurations{Config: c, settle: settled, apis: map[status.WebhookKind]*status.Webhooks{},
		kinds: map[status.WebhookKind]*kind{}, changed: make(chan struct{})}
	for _, k := range kinds {
		api, err := status.NewWebhooks(c.Kubeconfig, k)
		if err != nil {
			return nil, err
		}
		all.apis[k], all.kinds[k] = api, &kind{}
	}
	return all, nil
}

// Run follows validating and mutating configurations until ctx ends, and returns the error of ctx. While configurations
// cannot be read, the last known configurations stay, and the failure is logged.
func (c *Configurations) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, k := range kinds {
		all.Go(func() { _ = c.apis[k].Follow(ctx, seen{c, k}, func(err error) { c.fails(k, err) }) }) // its error is the context's
	}
	for loop.Pause(ctx, looks) == nil {
		c.roots()
	}
	all.Wait()
	return ctx.Err()
}

// roots returns the mesh's present and recent roots; nil: the present roots are unknown.
func (c *Configurations) roots() []*x509.Certificate {
	trusted, now := slices.Clone(c.Roots()), time.Now()
	if len(trusted) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lately == nil {
		c.lately = map[string]lateRoot{}
	}
	for _, root := range trusted {
		c.lately[string(root.Raw)] = lateRoot{root, now}
	}
	for _, encoded := range slices.Sorted(maps.Keys(c.lately)) {
		switch root := c.lately[encoded]; {
		case now.Sub(root.at) > overlap:
			delete(c.lately, encoded)
		case !slices.ContainsFunc(trusted, root.Equal):
			trusted = append(trusted, root.Certificate)
		}
	}
	return trusted
}

// seen receives the configurations of one kind.
type seen struct {
	*Configurations
	kind status.WebhookKind
}

// Replace implements status.Seen.
func (s seen) Replace(all map[status.Key]status.Found[unstructured.Unstructured]) {
	there := make(map[status.Key]status.Found[unstructured.Unstructured], len(all)) // not nil, since the kind was listed
	maps.Copy(there, all)
	s.change(func() {
		of := s.kinds[s.kind]
		of.there = there
		maps.DeleteFunc(of.since, func(k status.Key, _ standing) bool { return there[k].Object == nil })
		for k, f := range there {
			of.stands(k, f.Object)
		}
	})
}

// Observe implements status.Seen.
func (s seen) Observe(k status.Key, f status.Found[unstructured.Unstructured]) {
	s.change(func() {
		if of := s.kinds[s.kind]; f.Object == nil {
			delete(of.there, k)
			delete(of.since, k)
		} else if of.there != nil {
			of.there[k] = f
			of.stands(k, f.Object)
		}
	})
}

// stands records the present generation of a configuration.
func (k *kind) stands(key status.Key, u *unstructured.Unstructured) {
	if k.since == nil {
		k.since = map[status.Key]standing{}
	}
	if was, known := k.since[key]; !known || was.generation != u.GetGeneration() {
		k.since[key] = standing{u.GetGeneration(), time.Now()}
	}
}

func (c *Configurations) fails(k status.WebhookKind, err error) {
	c.change(func() {
		if was := c.kinds[k].failed; err != nil && was == nil {
			c.Log.Warn("webhook configurations cannot be read from the API server", obs.KeyKind, string(k), obs.KeyError, err)
		}
		c.kinds[k].failed = err
	})
}

func (c *Configurations) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// mesh returns the namespace, revision and roots of the mesh whose configurations are managed.
func (c *Configurations) mesh() configure.Mesh {
	return configure.Mesh{Namespace: c.Namespace, Revision: c.Revision, Roots: c.roots()}
}

// managed returns the mesh, and its configurations of one kind. changed is closed when the configurations may have
// changed.
func (c *Configurations) managed(k status.WebhookKind) (mesh configure.Mesh,
	all map[status.Key]*unstructured.Unstructured, changed <-chan struct{}) {
	mesh = c.mesh()
	c.mu.Lock()
	defer c.mu.Unlock()
	all = map[status.Key]*unstructured.Unstructured{}
	for key, f := range c.kinds[k].there {
		if mesh.Managed(f.Object) {
			all[key] = f.Object
		}
	}
	return mesh, all, c.changed
}

// ErrUnread reports that no configuration of a kind could be read so far. So it is unknown whether API servers trust a
// certificate.
var ErrUnread = errors.New("the webhook configurations cannot be read")

// Trusts reports whether API servers would trust a webhook that presents this certificate. All configurations of this
// control plane must trust it. presented must not be nil. Without a configuration of this control plane, the result is
// zero.
//
// A configuration counts as not trusting until 3 s after this process has seen its change, since API servers follow
// configurations separately. If a configuration does not trust the certificate, Callers is true and Refused is its
// error.
//
// Trust.Refused matches ErrUnread if every attempt to read configurations of a kind has failed so far. Until the first
// attempt has ended, Trust.Refused is another error. In both cases Callers is false.
func (c *Configurations) Trusts(presented *tls.Certificate) serving.Trust {
	trust := serving.Trust{}
	for _, k := range kinds {
		c.mu.Lock()
		of := *c.kinds[k]
		c.mu.Unlock()
		switch {
		case of.there == nil && of.failed != nil:
			return serving.Trust{Refused: fmt.Errorf("%w: %w", ErrUnread, of.failed)}
		case of.there == nil:
			return serving.Trust{Refused: errors.New("the webhook configurations are not read yet")}
		}
		mesh, all, _ := c.managed(k)
		for _, key := range slices.SortedFunc(maps.Keys(all), cmpName) {
			err := mesh.Trusts(all[key], presented, time.Now())
			switch {
			case c.Foreign && errors.Is(err, configure.ErrUnwritten):
				continue
			case err == nil && c.settling(k, key):
				err = fmt.Errorf("%s %s has just changed: API servers may still use its old version", k, key.Name)
			}
			if trust.Callers = true; err != nil {
				return serving.Trust{Callers: true, Refused: err}
			}
		}
	}
	return trust
}

// settling reports whether a configuration changed so recently that API servers may still use its last version.
func (c *Configurations) settling(k status.WebhookKind, key status.Key) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.kinds[k].since[key].at) < c.settle
}

// Gauges sets the metric about failurePolicy Ignore for each validation configuration of this control plane. It is 1 if
// the configuration has a webhook with this policy (configure.FailsOpen), otherwise 0. The argument is ignored.
func (c *Configurations) Gauges(time.Time) {
	obs.WebhookFailsOpen.Reset()
	_, all, _ := c.managed(status.Validating)
	for key, u := range all {
		open := 0.0
		if configure.FailsOpen(u) {
			open = 1
		}
		obs.WebhookFailsOpen.WithLabelValues(key.Name).Set(open)
	}
}
