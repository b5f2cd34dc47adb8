package machines

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// WorkloadEntry is an existing entry that was registered before.
type WorkloadEntry struct {
	Name
	Account string
}

// Wanted is the target state of one WorkloadEntry.
type Wanted struct {
	// Machine is the machine that is, or was last, connected; nil if this process knows only the entry.
	Machine *Machine
	// Disconnected is when this process noticed that the machine is not connected; zero while it is.
	Disconnected time.Time
	// Gone means that the grace has passed without the machine.
	Gone bool
}

// Problem is the reason why a machine has no WorkloadEntry, or its health is not stored.
type Problem struct {
	Machine
	Message string
}

// Registry decides which WorkloadEntries exist. The leader makes a new one for each term, so each term starts every
// grace again. It is pure: time is an argument. It compares only times of this process, so clocks of machines and
// replicas may differ. It is not safe for concurrent use.
type Registry struct {
	grace time.Duration
	known map[Name]*known
}

// known is an entry behind which a machine is or was.
type known struct {
	machine *Machine
	account string
	since   time.Time // when the last machine disconnected; zero while one is connected
}

// NewRegistry returns an empty Registry. An entry without a connected machine goes after grace.
func NewRegistry(grace time.Duration) *Registry {
	return &Registry{grace: grace, known: map[Name]*known{}}
}

// Step returns the target states, given the reports of all replicas and the existing entries. An entry that is Gone
// stays in the result until it no longer exists. wait is the time after which the result changes by itself; 0: never.
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

// withoutTaken removes machines whose address now belongs to another object, and reports them.
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

// latest returns one report of each machine. Connected machines precede disconnected ones, and newer connections
// precede older ones: while a machine moves two replicas report it, until the older connection ends. A machine that is
// not the entry's holder becomes a problem. Replicas refuse such machines too, as far as they know (push/machines).
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

// first reports whether a precedes b if they are different machines and neither is the known holder of the entry: after
// a change of leader, or after the holder has left.
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

// admitted removes machines that claim another machine's address, and those beyond the bounds of a service account.
// Known machines stay. Replicas refuse both too, as far as they know (push/machines), but two replicas may each admit
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
