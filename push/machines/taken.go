package machines

import (
	"maps"
	"time"

	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A Pod or a Service may get an address that a machine has registered before. Kubernetes gives these addresses, and a machine claims its own: so the machine loses it, and
// the leader takes its entry away (machines.Machine.Taken). What others write, WorkloadEntries and ServiceEntries, takes nothing from a machine that is registered: whoever may write
// them in some namespace could have the machines of another one go.

// firm says whether a holder has its address from Kubernetes.
func (h holder) firm() bool {
	return h.of == ofPod || h.of == ofService && h.key.Kind == model.KindService
}

// taker names the holder that takes the address of a machine that is registered; empty: nobody does.
func (all holders) taker(m machines.Machine) string {
	for _, h := range all[addressOf(m)] {
		if by := h.excludes(m); by != "" && h.firm() {
			return by
		}
	}
	return ""
}

// doubt notes the machines whose address a Pod or a Service has, or had, of those that were edited.
func (r *Registry) doubt(edits []mirror.Edit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known.all) == 0 {
		return
	}
	for _, e := range edits {
		if kind := e.Key().Kind; kind != model.KindWorkload && kind != model.KindService {
			continue
		}
		edited := holders{}
		edited.read(e.Old)
		edited.read(e.New)
		for address := range edited {
			for _, name := range r.known.holders[address.String()] {
				if edited.taker(r.known.get(name).report) != "" {
					r.doubted[name] = true
				}
			}
		}
	}
}

// refreshTaken finds out whose address has become somebody else's, and whose is its own again. The configuration is looked through once in holdersFor at most; it returns when that may be done, or
// when there is nothing to be found out, as far as is known, a long time.
func (r *Registry) refreshTaken(now time.Time) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.doubted, func(name machines.Name, doubted bool) bool { return !doubted || r.known.get(name) == nil })
	if len(r.doubted) == 0 {
		return time.Hour
	}
	if s := r.Snapshot(); !r.addresses.isOf(s) {
		if wait := r.addresses.wait(now); wait > 0 {
			return wait
		}
		r.addresses.refreshHolders(s, now)
	}
	for name := range r.doubted {
		m := r.known.get(name)
		m.report.Taken = r.addresses.holders.taker(m.report)
	}
	clear(r.doubted)
	return time.Hour
}
