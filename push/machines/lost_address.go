package machines

import (
	"maps"
	"time"

	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A Pod or a Service may get the address of a registered machine. Kubernetes assigns those addresses, and a machine
// only claims its own. So the machine loses the address, and the leader deletes its entry (machines.Machine.Taken).
// WorkloadEntries and ServiceEntries take no address from a registered machine: otherwise an author in one namespace
// could remove the machines of another.

// firm reports whether a holder has its address from Kubernetes.
func (h holder) firm() bool {
	return h.of == ofPod || h.of == ofService && h.key.Kind == model.KindService
}

// taker names the holder that takes the address of a registered machine; empty if there is no such holder.
func (all holders) taker(m machines.Machine) string {
	for _, h := range all[addressOf(m)] {
		if by := h.excludes(m); by != "" && h.firm() {
			return by
		}
	}
	return ""
}

// doubt marks the machines whose address is or was that of an edited Pod or Service.
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

// refreshTaken updates which machines have lost their address and which have it back. It searches the configuration at
// most once in holdersFor. It returns the time until the next search, or a long time if no machine is marked.
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
