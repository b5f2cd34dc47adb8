package secret

import (
	"maps"

	"navarch.io/navarch/push/plan/input"
)

// Fork returns an independent table that plans with another input. It has the same subscriptions, rights and private
// keys. Another goroutine may use the new table. Identities that have neither names nor modules are left out. The
// method Of creates such identities again when they are needed.
func (t *Table) Fork(in *input.Input) *Table {
	next := New(in)
	forks := map[*Subscriptions]*Subscriptions{}
	for who, subs := range t.identities {
		if len(subs.names)+len(subs.modules) == 0 {
			continue
		}
		same := *subs
		same.names, same.modules = copies(subs.names), copies(subs.modules)
		forks[subs], next.identities[who] = &same, &same
		next.updateLists(&same)
	}
	for key, o := range t.keys {
		one := *o
		one.users = map[*Subscriptions]int{}
		for subs, n := range o.users {
			if same := forks[subs]; same != nil {
				one.users[same] = n
			}
		}
		next.keys[key] = &one
	}
	return next
}

// copies returns a copy of the map, in which the values are also copied.
func copies[K comparable, V any](all map[K]*V) map[K]*V {
	next := make(map[K]*V, len(all))
	for key, v := range all {
		one := *v
		next[key] = &one
	}
	return next
}

// Copy returns a copy of the names. Later changes of one of the two sets do not affect the other set.
func (n Names) Copy() Names { return Names{maps.Clone(n.names)} }
