package machines

import (
	"iter"
	"slices"

	"navarch.io/navarch/store/machines"
)

// table holds the machines of one replica by entry name. It also holds the names of the machines with each address. It
// counts the machines of each service account and of each credential. A registration therefore needs no search.
type table struct {
	all         map[machines.Name]*machine
	holders     map[string][]machines.Name // by address; several names only if the networks differ
	accounts    map[account]int
	credentials map[credential]int // empty credentials are not counted
	visited     int                // number of machines that the method each has yielded; for tests
}

// account is a service account.
type account struct{ namespace, name string }

// credential is one credential of a service account.
type credential struct {
	account
	digest string // machines.Machine.Credential
}

// newTable returns an empty table.
func newTable() table {
	return table{all: map[machines.Name]*machine{}, holders: map[string][]machines.Name{}, accounts: map[account]int{},
		credentials: map[credential]int{}}
}

// accountOf returns the service account of a machine.
func accountOf(m machines.Machine) account { return account{m.Namespace, m.Account} }

// credentialOf returns the credential of a machine.
func credentialOf(m machines.Machine) credential { return credential{accountOf(m), m.Credential} }

// get returns a machine, or nil if it is not in the table.
func (t *table) get(name machines.Name) *machine { return t.all[name] }

// put stores the report of a new or known machine, and returns the machine.
func (t *table) put(report machines.Machine) *machine {
	m := t.all[report.ID()]
	if m == nil {
		m = &machine{}
		t.all[report.ID()] = m
	} else {
		t.count(m.report, -1)
	}
	m.report = report
	t.count(report, 1)
	return m
}

// drop removes a machine.
func (t *table) drop(name machines.Name) {
	if m := t.all[name]; m != nil {
		t.count(m.report, -1)
		delete(t.all, name)
	}
}

// count updates holders, accounts and credentials. It adds the report if delta is 1, and removes the report if delta is
// -1.
func (t *table) count(report machines.Machine, delta int) {
	of := accountOf(report)
	if t.accounts[of] += delta; t.accounts[of] == 0 {
		delete(t.accounts, of)
	}
	if of := credentialOf(report); of.digest != "" {
		if t.credentials[of] += delta; t.credentials[of] == 0 {
			delete(t.credentials, of)
		}
	}
	if report.Spec == nil {
		return
	}
	at, id := report.Spec.GetAddress(), report.ID()
	others := slices.DeleteFunc(t.holders[at], func(n machines.Name) bool { return n == id })
	if delta > 0 {
		others = append(others, id)
	}
	if t.holders[at] = others; len(others) == 0 {
		delete(t.holders, at)
	}
}

// holder returns the name of another machine with the report's address, if both may be in the same network. Without
// such a machine, held is false.
func (t *table) holder(report machines.Machine) (holder machines.Name, held bool) {
	for _, name := range t.holders[report.Spec.GetAddress()] {
		if name != report.ID() && machines.Meet(t.all[name].report.Spec.GetNetwork(), report.Spec.GetNetwork()) {
			return name, true
		}
	}
	return machines.Name{}, false
}

// each yields all machines, in arbitrary order.
func (t *table) each() iter.Seq2[machines.Name, *machine] {
	return func(yield func(machines.Name, *machine) bool) {
		for name, m := range t.all {
			t.visited++
			if !yield(name, m) {
				return
			}
		}
	}
}
