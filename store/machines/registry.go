package machines

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// WorkloadEntry is an existing entry that was made for a machine, perhaps in an earlier term of leadership.
type WorkloadEntry struct {
	Name
	Account string // service account; empty: not known
}

// Wanted is the target state of one WorkloadEntry.
type Wanted struct {
	// Machine is the connected machine, or the last one; nil if only the entry is known.
	Machine *Machine
	// Disconnected is the time at which this process noticed that the machine is not connected; zero while it is
	// connected. For a machine that has lost its address, it is set back by the grace, so the entry is Gone at once.
	Disconnected time.Time
	// Gone means that the grace has passed without the machine, so that its entry must be deleted.
	Gone bool
}

// Problem is the reason why a machine has no WorkloadEntry, or its health is not stored.
type Problem struct {
	Machine
	Message string
}

// Registry decides which WorkloadEntries exist. The leader makes a new Registry for each term, so in each term the
// grace of every entry starts again. A Registry has no clock: the time is an argument. The grace depends on times of
// this process alone, so clocks of machines and replicas may differ. Only the order of connections with the same entry
// depends on the replicas' clocks. A Registry is not safe for concurrent use.
type Registry struct {
	grace time.Duration
	known map[Name]*known
}

// known is an entry with its present or last machine.
type known struct {
	machine *Machine // nil: not reported in this term
	account string
	since   time.Time // when the last machine disconnected; zero while one is connected
}

// NewRegistry returns an empty Registry. An entry without a connected machine is Gone after the time grace, or at once
// if grace is 0.
func NewRegistry(grace time.Duration) *Registry {
	return &Registry{grace: grace, known: map[Name]*known{}}
}

// Step returns the target states of all known entries, given the reports of all replicas and the existing entries. It
// keeps pointers into reports, which must not change afterwards. An entry that is Gone stays in the first result until
// the entry no longer exists. The second result names the machines that are left out. The third result is the time
// after which the first result changes even if reports and entries stay the same; 0: never.
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
		if lost[name] { // without grace: requests for the machine's service would reach the new owner of the address
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

// withoutTaken removes the machines whose address now belongs to another object, and returns their names and problems.
func withoutTaken(machines map[Name]*Machine) (lost map[Name]bool, problems []Problem) {
	lost = map[Name]bool{}
	for _, name := range slices.SortedFunc(maps.Keys(machines), compareNames) {
		if m := machines[name]; m.Taken != "" {
			lost[name] = true
			problems = append(problems, Problem{*m, fmt.Sprintf("its address %s now belongs to %s: the machine has no WorkloadEntry "+
				"until the address is free", m.Spec.GetAddress(), m.Taken)})
			delete(machines, name)
		}
	}
	return lost, problems
}

// latest returns one report for each entry. If several identities claim the entry, the known holder of the entry takes
// precedence if it is connected. If it is not connected, the function first decides. Among the reports of one identity,
// latest prefers connected machines, and among these the newest connection. While a machine moves between replicas,
// both report it until the older connection ends. A connected machine whose identity is not that of the entry's holder
// becomes a problem. Replicas refuse such machines too, as far as they know (push/machines).
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

// first reports whether the report a is preferred to the report b. The reports are from different machines, and neither
// machine is the known holder of the entry. A connected machine is preferred to a disconnected one. If both or neither
// are connected, the older connection is preferred.
func first(a, b *Machine) bool {
	if a.Disconnected.IsZero() != b.Disconnected.IsZero() {
		return a.Disconnected.IsZero()
	}
	return cmp.Or(a.Connected.Compare(b.Connected), cmp.Compare(a.Replica, b.Replica)) < 0
}

// newer compares two reports of one machine. The result is positive if a is connected and b is not. If both or neither
// are connected, it is positive if a has the newer connection.
func newer(a, b *Machine) int {
	if a.Disconnected.IsZero() != b.Disconnected.IsZero() {
		if a.Disconnected.IsZero() {
			return 1
		}
		return -1
	}
	return cmp.Or(a.Connected.Compare(b.Connected), -cmp.Compare(a.Replica, b.Replica))
}

// admitted removes machines whose service account is not that of their entry, machines that claim the address of
// another machine, and machines beyond the bounds of a service account. Machines with a known entry are never beyond
// the bounds. Replicas refuse such machines too, as far as they know (push/machines), but two replicas may each admit
// one at the same time.
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
			problems = append(problems, Problem{*m, fmt.Sprintf("WorkloadEntry %s is of service account %q, and the machine is of %q", name,
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
