package proxy

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"navarch.io/navarch/push/xds"
)

// names contains every name and version that the fleet has seen; proxies refer to them by index.
type names struct {
	mu     sync.RWMutex
	byName [xds.NumTypes]map[string]*record
	table  [xds.NumTypes][]*record

	lastVersion atomic.Uint32
	versions    [1 << 14]atomic.Pointer[chunk] // by id
}

const chunkSize = 1 << 12

type chunk [chunkSize]atomic.Pointer[version]

// record is one name of one type.
type record struct {
	t     xds.Type
	name  string
	index uint32 // among the names of its type

	mu     sync.Mutex
	serial uint32
	log    []*version          // in the order in which they were first seen
	byText map[string]*version // of log, once that is long
	probes atomic.Pointer[[]*Probe]
}

// version is one version of a resource.
type version struct {
	id   uint32
	rec  *record
	text string
	// holders is the number of proxies that hold the version. It is increased under rec.mu, so that versions without
	// holders can be removed there.
	holders atomic.Int32
	low     atomic.Int32  // smallest number of holders since the last suspicion
	serial  atomic.Uint32 // order in time: larger is newer; a version that is reverted to becomes the newest
	facts   *facts
}

// keepVersions is the number of versions of a name that are kept without holders.
const keepVersions = 32

func newNames() *names {
	n := &names{}
	for t := range n.byName {
		n.byName[t] = map[string]*record{}
	}
	return n
}

// name returns the record of a name, and creates it for a new name with a copy of the string.
func (n *names) name(t xds.Type, name string) *record {
	n.mu.RLock()
	r := n.byName[t][name]
	n.mu.RUnlock()
	if r != nil {
		return r
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if r = n.byName[t][name]; r == nil {
		r = &record{t: t, name: strings.Clone(name), index: uint32(len(n.table[t]))}
		n.byName[t][r.name] = r
		n.table[t] = append(n.table[t], r)
	}
	return r
}

// at returns the record with an index.
func (n *names) at(t xds.Type, index uint32) *record {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.table[t][index]
}

// version returns the version with an id; it must have a holder.
func (n *names) version(id uint32) *version {
	return n.versions[id/chunkSize].Load()[id%chunkSize].Load()
}

// acquire returns the version of a name with this text and adds a holder. first means that it is the only one: of
// several concurrent callers exactly one is first. `read` computes the facts of a new version and is called once for
// each.
func (n *names) acquire(r *record, text string, read func() *facts) (v *version, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v = r.find(text); v == nil {
		v = &version{id: n.lastVersion.Add(1), rec: r, text: strings.Clone(text), facts: read()}
		r.serial++
		v.serial.Store(r.serial)
		n.put(v)
		r.log = append(r.log, v)
		if r.byText != nil {
			r.byText[v.text] = v
		}
		v.holders.Add(1)
		n.trim(r)
		return v, true
	}
	return v, v.holders.Add(1) == 1
}

func (n *names) put(v *version) {
	slot := &n.versions[v.id/chunkSize]
	c := slot.Load()
	for c == nil {
		slot.CompareAndSwap(nil, &chunk{})
		c = slot.Load()
	}
	c[v.id%chunkSize].Store(v)
}

func (r *record) find(text string) *version {
	if r.byText != nil {
		return r.byText[text]
	}
	for _, v := range slices.Backward(r.log) {
		if v.text == text {
			return v
		}
	}
	return nil
}

// trim removes old versions without holders, and indexes a long log.
func (n *names) trim(r *record) {
	if len(r.log) <= keepVersions {
		return
	}
	if len(r.log) > 2*keepVersions || r.byText == nil {
		extra := len(r.log) - keepVersions
		r.log = slices.DeleteFunc(r.log, func(v *version) bool {
			if extra <= 0 || v.holders.Load() > 0 {
				return false
			}
			extra--
			n.versions[v.id/chunkSize].Load()[v.id%chunkSize].Store(nil)
			delete(r.byText, v.text)
			return true
		})
	}
	if r.byText == nil && len(r.log) > keepVersions {
		r.byText = make(map[string]*version, len(r.log))
		for _, v := range r.log {
			r.byText[v.text] = v
		}
	}
}

// release removes one holder.
func (v *version) release() {
	left := v.holders.Add(-1)
	for {
		low := v.low.Load()
		if left >= low || v.low.CompareAndSwap(low, left) {
			return
		}
	}
}

func (r *record) addProbe(p *Probe) {
	r.editProbes(func(all []*Probe) []*Probe { return append(all, p) })
}
func (r *record) dropProbe(p *Probe) {
	r.editProbes(func(all []*Probe) []*Probe { return without(all, p) })
}

func without(all []*Probe, p *Probe) []*Probe {
	return slices.DeleteFunc(all, func(q *Probe) bool { return q == p })
}

func (r *record) editProbes(edit func([]*Probe) []*Probe) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*Probe
	if old := r.probes.Load(); old != nil {
		all = slices.Clone(*old)
	}
	if all = edit(all); len(all) == 0 {
		r.probes.Store(nil)
		return
	}
	r.probes.Store(&all)
}

// probes visits all probes.
func (n *names) probes(visit func(*Probe)) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, table := range n.table {
		for _, r := range table {
			for _, p := range r.watching() {
				visit(p)
			}
		}
	}
}

// watching returns the probes of this name.
func (r *record) watching() []*Probe {
	if all := r.probes.Load(); all != nil {
		return *all
	}
	return nil
}
