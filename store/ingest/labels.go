package ingest

import (
	"maps"
	"sync"

	"navarch.io/navarch/store/object"
)

// labels are the namespaces that have TenantLabel, with its value. Owned by inventory.
type labels struct {
	values  map[string]string
	version uint64 // counts changes
}

// set says whether something changed.
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

// noteNamespace takes TenantLabel from the event of a Namespace.
func (w *inventory) noteNamespace(e object.Event) {
	name, value := e.ID.Name, ""
	switch {
	case e.ID.Origin.Cluster() != "": // whose a namespace is, the config cluster says
		return
	case e.Op == object.Put && e.Object.ID.Group == "" && e.Object.ID.Kind == "Namespace":
		if _, yields := e.ID.Origin.Before(); yields {
			if _, other := w.other(e.ID); other != nil {
				return
			}
		}
		name, value = e.Object.ID.Name, e.Object.Labels[TenantLabel]
	case e.Op == object.Delete && e.ID.Group == "" && e.ID.Kind == "Namespace":
		if _, other := w.other(e.ID); other != nil && other.object != nil {
			value = other.object.Labels[TenantLabel]
		}
	default:
		return
	}
	if w.labels.set(name, value) && w.ledger != nil {
		w.ledger.label(name, value)
	}
}

// tenantsOf is what Loop.Tenants gives.
type tenantsOf struct {
	mu      sync.Mutex // nothing else is locked while it is held
	values  map[string]string
	version uint64
	changed chan struct{}
}

// Tenants is the value of TenantLabel of each namespace that has one; nil until the sources have emitted everything. It is
// never changed: the channel is closed when there is another one. Any goroutine may call it.
func (l *Loop) Tenants() (map[string]string, <-chan struct{}) {
	l.tenants.mu.Lock()
	defer l.tenants.mu.Unlock()
	if l.tenants.changed == nil {
		l.tenants.changed = make(chan struct{})
	}
	return l.tenants.values, l.tenants.changed
}

func (t *tenantsOf) publish(s *State) {
	if len(s.unsynced) > 0 || t.values != nil && t.version == s.labels.version { // only the loop writes
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.values, t.version = maps.Clone(s.labels.values), s.labels.version; t.values == nil {
		t.values = map[string]string{}
	}
	if t.changed != nil {
		close(t.changed)
	}
	t.changed = make(chan struct{})
}
