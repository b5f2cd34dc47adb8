package machines

import (
	"maps"
	"time"

	"navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Kubernetes may assign the address of a registered machine to a Pod or a Service. The machine only claims its address,
// so it loses the address, and the leader deletes its entry (machines.Machine.Taken). A machine does not lose its
// address to a WorkloadEntry or ServiceEntry. If it did, an author in one namespace could remove the machines of
// another namespace.

// fromKubernetes reports whether Kubernetes has assigned the holder's address. The holder is a Pod or a Kubernetes
// Service.
func (h holder) fromKubernetes() bool {
	return h.of == ofPod || h.of == ofService && h.key.Kind == model.KindService
}

// taker returns the name of the holder to which a registered machine has lost its address, or "".
func (all holders) taker(m machines.Machine) string {
	for _, h := range all[addressOf(m)] {
		if by := h.excludes(m); by != "" && h.fromKubernetes() {
			return by
		}
	}
	return ""
}

// markEdited marks the machines whose address an edited Pod or Service has or had. refreshTaken examines the marked
// machines.
func (r *Registry) markEdited(edits []mirror.Edit) {
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

// refreshTaken records in the reports of the marked machines whether a Pod or Service has their address, and removes
// the marks. It searches the configuration at most once in holdersFor. It returns the time until it must be called
// again, or an hour if no machine is marked.
func (r *Registry) refreshTaken(now time.Time) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.doubted, func(name machines.Name, doubted bool) bool { return !doubted || r.known.get(name) == nil })
	if len(r.doubted) == 0 {
		return time.Hour
	}
	if s := r.Snapshot(); !r.addresses.foundIn(s) {
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
