package secret

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
)

// opened is the private key of one record, or that it is needed.
type opened struct {
	record *model.Secret // whose key is needed
	of     *model.Secret // whose key is here; nil: none
	key    *model.PrivateKey
	taken  bool                   // somebody has been told to open it
	users  map[*Subscriptions]int // for how many of its resources it is needed
}

// keys are private keys that are needed, by their Secrets.
type keys map[model.Key]*opened

// need notes that a resource of an identity needs the private key of a record, and returns it, or nil: it is not opened yet.
func (k keys) need(record *model.Secret, subs *Subscriptions) *model.PrivateKey {
	o := k[record.Key]
	if o == nil {
		o = &opened{}
		k[record.Key] = o
	}
	if o.users == nil {
		o.users = map[*Subscriptions]int{}
	}
	o.users[subs]++
	if o.record != record {
		o.record, o.taken = record, false
	}
	if o.of != record {
		return nil
	}
	return o.key
}

// drop ends a need. tidy forgets what nothing needs any more.
func (k keys) drop(key model.Key, subs *Subscriptions) {
	o := k[key]
	if o == nil {
		return
	}
	if o.users[subs]--; o.users[subs] <= 0 {
		delete(o.users, subs)
	}
}

func (k keys) tidy() {
	maps.DeleteFunc(k, func(_ model.Key, o *opened) bool { return len(o.users) == 0 })
}

// Sealed takes the records whose private keys are to be opened, each once: Opened or Unopened answers.
func (t *Table) Sealed() (records []*model.Secret) {
	for _, o := range t.keys {
		if o.of != o.record && !o.taken {
			o.taken = true
			records = append(records, o.record)
		}
	}
	slices.SortFunc(records, func(a, b *model.Secret) int { return a.Key.Compare(b.Key) })
	return records
}

// Opened answers with the private key of a record, and returns whose Secrets are planned again with it. One that is not needed any more
// is forgotten.
func (t *Table) Opened(record *model.Secret, key model.PrivateKey) (planned []*Subscriptions) {
	o := t.keys[record.Key]
	if o == nil || o.record != record {
		return nil
	}
	o.of, o.key = record, &key
	for subs := range maps.Clone(o.users) { // planning ends needs, and makes them again
		var names []string
		for name, s := range subs.names {
			if s.needs == record.Key {
				names = append(names, name)
			}
		}
		subs.plan(t.in, names, t.keys)
		var modules []model.Key
		for extension, m := range subs.modules {
			if m.needs == record.Key {
				modules = append(modules, extension)
			}
		}
		subs.planModules(t.in, modules, t.keys)
		planned = append(planned, subs)
	}
	return planned
}

// Unopened has a record that could not be opened given out by Sealed again, and says whether it is still needed.
func (t *Table) Unopened(record *model.Secret) bool {
	o := t.keys[record.Key]
	if o == nil || o.record != record {
		return false
	}
	o.taken = false
	return true
}

// Pending are the Secrets of what a proxy subscribes to that are not opened yet.
func (t *Table) Pending(subs *Subscriptions, of *Names) (pending []model.Key) {
	for name := range of.names {
		if t.opening(subs, name) {
			pending = append(pending, subs.names[name].needs)
		}
	}
	return pending
}

// opening says whether the private key of a subscription, or that of its newest version, is not opened yet.
func (t *Table) opening(subs *Subscriptions, name string) bool {
	o := t.keys[subs.names[name].needs]
	return o != nil && o.of != o.record
}

// Inherit takes over the private keys that another table has opened for identities that this one has.
func (t *Table) Inherit(old *Table) {
	for who := range t.identities {
		for key, o := range old.keys {
			if key.Namespace == who.Namespace && t.keys[key] == nil {
				t.keys[key] = &opened{record: o.record, of: o.of, key: o.key, taken: o.taken}
			}
		}
	}
}
