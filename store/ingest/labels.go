package ingest

import (
	"maps"
	"sync"

	"navarch.io/navarch/store/object"
)

// labels maps namespaces to the value of their TenantLabel, the label that assigns a namespace to a tenant. The
// inventory owns it.
type labels struct {
	values  map[string]string
	version uint64 // counts changes
}

// set stores the label of a namespace, and reports whether it has changed. An empty value removes the label.
func (l *labels) set(namespace, value string) bool {
	if l.values[namespace] == value {
		return false
	}
	if l.version++; value == "" {
		delete(l.values, namespace)
		return true
	}
	if l.values == nil {
		l.values = map[string]string{}
	}
	l.values[namespace] = value
	return true
}

// noteNamespace stores the value of TenantLabel of an added, changed or deleted Namespace. Only Namespaces of the
// config cluster assign tenants.
func (w *inventory) noteNamespace(e object.Event) {
	if e.ID.Origin.Cluster() != "" || e.ID.Group != "" || e.ID.Kind != "Namespace" {
		return
	}
	value := ""
	switch e.Op {
	case object.Put:
		if w.before(e.ID) != nil {
			return
		}
		value = e.Object.Labels[TenantLabel]
	case object.Delete:
		if other := w.other(e.ID); other != nil && other.Object() != nil {
			value = other.Object().Labels[TenantLabel]
		}
	case object.Broken, object.Synced, object.Forget:
		return
	}
	if !w.labels.set(e.ID.Name, value) {
		return
	}
	if w.objects.Label(e.ID.Name, value); w.budgets != nil {
		w.budgets.ledger.label(e.ID.Name, value)
	}
}

// tenantsOf contains the results of Loop.Tenants.
type tenantsOf struct {
	mu      sync.Mutex // no other lock is acquired while it is held
	values  map[string]string
	version uint64
	changed chan struct{}
}

// Tenants returns the value of TenantLabel of each namespace of the config cluster that has the label. The map is nil
// until the sources have emitted everything, and never nil afterwards. It is read-only. A change replaces the map and
// closes the channel. Tenants may be called from any goroutine.
func (l *Loop) Tenants() (map[string]string, <-chan struct{}) {
	l.tenants.mu.Lock()
	defer l.tenants.mu.Unlock()
	if l.tenants.changed == nil {
		l.tenants.changed = make(chan struct{})
	}
	return l.tenants.values, l.tenants.changed
}

// publish replaces the results of Loop.Tenants if labels have changed.
func (t *tenantsOf) publish(s *State) {
	labels := &s.inventory.labels
	if !s.sources.complete() || t.values != nil && t.version == labels.version { // only the loop writes
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.values, t.version = maps.Clone(labels.values), labels.version; t.values == nil {
		t.values = map[string]string{}
	}
	if t.changed != nil {
		close(t.changed)
	}
	t.changed = make(chan struct{})
}
