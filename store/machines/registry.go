package machines

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// WorkloadEntry is one that was registered before, as it is there.
type WorkloadEntry struct {
	Name
	Account string
}

// Wanted is what should be of one WorkloadEntry.
type Wanted struct {
	// Machine is the one that is, or was last, connected; nil: this process knows none, only the entry.
	Machine *Machine
	// Disconnected is when this process noticed that the machine is not connected; zero: it is.
	Disconnected time.Time
	// Gone: the grace has passed without the machine.
	Gone bool
}

// Problem is why a machine has no WorkloadEntry, or its health is not kept.
type Problem struct {
	Machine
	Message string
}

// Registry decides which WorkloadEntries there are. It is the leader's, for one term: it asks no clock and nobody; a new one begins each grace
// again. Times are compared with those of the same process only, so machines and replicas whose clocks differ do no harm. Not safe for
// concurrent use.
type Registry struct {
	grace time.Duration
	known map[Name]*known
}

// known is an entry that a machine is, or was, behind.
type known struct {
	machine *Machine
	account string
	since   time.Time // no machine is connected; zero: one is
}

// NewRegistry makes one that knows nothing. An entry goes when no machine was behind it for grace.
func NewRegistry(grace time.Duration) *Registry {
	return &Registry{grace: grace, known: map[Name]*known{}}
}

// Step takes all reports of all replicas, and the entries that are there, and says what is wanted of each; what is Gone is said once entries
// no longer have it. wait is how long that stays so if nothing changes; 0: for good.
func (r *Registry) Step(now time.Time, reports []Machine, there []WorkloadEntry) (all map[Name]Wanted, problems []Problem,
	wait time.Duration) {
	for _, e := range there {
		if r.known[e.Name] == nil {
			r.known[e.Name] = &known{account: e.Account, since: now}
		}
	}
	machines, foreign := r.latest(reports)
	lost, taken := withoutTaken(machines)
	machines, problems = r.admitted(machines)
	problems = append(problems, taken...)
	problems = append(problems, foreign...)
	for name, m := range machines {
		k := r.known[name]
		if k == nil {
			k = &known{}
			r.known[name] = k
		}
		k.machine, k.account = m, m.Account
		if m.Disconnected.IsZero() {
			k.since = time.Time{}
		}
	}
	present := make(map[Name]bool, len(there))
	for _, e := range there {
		present[e.Name] = true
	}
	all = make(map[Name]Wanted, len(r.known))
	for name, k := range r.known {
		m := machines[name]
		if k.since.IsZero() && (m == nil || !m.Disconnected.IsZero()) {
			k.since = now
		}
		if lost[name] { // without the grace: requests for somebody else's service would go to who has the address now
			k.since = now.Add(-r.grace)
		}
		w := Wanted{Machine: k.machine, Disconnected: k.since}
		if !k.since.IsZero() {
			left := r.grace - now.Sub(k.since)
			if w.Gone = left <= 0; !w.Gone && (wait == 0 || left < wait) {
				wait = left
			}
		}
		if w.Gone && !present[name] {
			delete(r.known, name)
			continue
		}
		all[name] = w
	}
	return all, problems, wait
}

// withoutTaken leaves out machines whose address is somebody else's by now, and names them.
func withoutTaken(machines map[Name]*Machine) (lost map[Name]bool, problems []Problem) {
	lost = map[Name]bool{}
	for _, name := range slices.SortedFunc(maps.Keys(machines), compareNames) {
		if m := machines[name]; m.Taken != "" {
			lost[name] = true
			problems = append(problems, Problem{*m, fmt.Sprintf("its address %s has become that of %s: there is no WorkloadEntry as long as "+
				"that is so", m.Spec.GetAddress(), m.Taken)})
			delete(machines, name)
		}
	}
	return lost, problems
}

// latest has one report of each machine: of two that of the newer connection, and one of a machine that is connected before others. Two
// replicas report one machine while it moves; the older connection ends, and then its report goes. Who does not hold the entry does not take it
// over: they are a problem. Replicas refuse that before, as far as they know (push/machines).
func (r *Registry) latest(reports []Machine) (map[Name]*Machine, []Problem) {
	out, held := map[Name]*Machine{}, map[Name]Holder{}
	for _, m := range reports {
		if k := r.known[m.ID()]; m.Disconnected.IsZero() && k != nil && k.machine != nil && k.machine.Holder().Is(m.Holder()) {
			held[m.ID()] = k.machine.Holder()
		}
	}
	for i := range reports {
		m := &reports[i]
		holder, is := held[m.ID()]
		was := out[m.ID()]
		switch {
		case is && !holder.Is(m.Holder()):
		case was == nil, was.Holder().Is(m.Holder()) && newer(m, was) > 0, !was.Holder().Is(m.Holder()) && first(m, was):
			out[m.ID()] = m
		}
	}
	var problems []Problem
	for _, m := range reports {
		if holder := out[m.ID()].Holder(); m.Disconnected.IsZero() && !holder.Is(m.Holder()) {
			problems = append(problems, Problem{m, Held(m.ID(), holder)})
		}
	}
	return out, problems
}

// first says whether a is before b where they are not the same machine, and neither is known to hold the entry: after another process has begun to
// lead, or after its holder has left.
func first(a, b *Machine) bool {
	if a.Disconnected.IsZero() != b.Disconnected.IsZero() {
		return a.Disconnected.IsZero()
	}
	return cmp.Or(a.Connected.Compare(b.Connected), cmp.Compare(a.Replica, b.Replica)) < 0
}

func newer(a, b *Machine) int {
	if a.Disconnected.IsZero() != b.Disconnected.IsZero() {
		if a.Disconnected.IsZero() {
			return 1
		}
		return -1
	}
	return cmp.Or(a.Connected.Compare(b.Connected), -cmp.Compare(a.Replica, b.Replica))
}

// admitted leaves out machines that claim the address of another one, and those of a service account that has too many. Who is known stays.
// Replicas refuse both before, as far as they know (push/machines): two may let in one each at the same time.
func (r *Registry) admitted(machines map[Name]*Machine) (map[Name]*Machine, []Problem) {
	type account struct{ namespace, name string }
	type credential struct {
		account
		digest string
	}
	holders, of, by := map[string][]*Machine{}, map[account]int{}, map[credential]int{}
	for name, k := range r.known {
		of[account{name.Namespace, k.account}]++
		if k.machine != nil && k.machine.Credential != "" {
			by[credential{account{name.Namespace, k.account}, k.machine.Credential}]++
		}
		if k.machine != nil && k.machine.Spec != nil {
			holders[k.machine.Spec.Address] = append(holders[k.machine.Spec.Address], k.machine)
		}
	}
	var problems []Problem
	for _, name := range slices.SortedFunc(maps.Keys(machines), compareNames) {
		m := machines[name]
		k := r.known[name]
		switch {
		case k != nil && k.account != m.Account:
			problems = append(problems, Problem{*m, fmt.Sprintf("WorkloadEntry %s is of service account %q, and the machine of %q", name,
				k.account, m.Account)})
			delete(machines, name)
			continue
		case m.Spec == nil:
			continue
		}
		at := m.Spec.Address
		if i := slices.IndexFunc(holders[at], func(o *Machine) bool { return o.ID() != name && Meet(o.Spec.Network, m.Spec.Network) }); i >= 0 {
			problems = append(problems, Problem{*m, fmt.Sprintf("it claims address %s, which is that of WorkloadEntry %s", at, holders[at][i].ID())})
			delete(machines, name)
			continue
		}
		if k == nil {
			a := account{name.Namespace, m.Account}
			c := credential{a, m.Credential}
			if full := Full(of[a], by[c]); full != "" {
				problems = append(problems, Problem{*m, fmt.Sprintf("service account %q %s", m.Account, full)})
				delete(machines, name)
				continue
			}
			if of[a]++; m.Credential != "" {
				by[c]++
			}
		}
		holders[at] = append(holders[at], m)
	}
	return machines, problems
}

func compareNames(a, b Name) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
