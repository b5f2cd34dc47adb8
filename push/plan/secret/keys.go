package secret

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
)

// opened is the private key of one Secret that some resource needs, opened or not yet.
type opened struct {
	record *model.Secret // the version whose key is needed
	of     *model.Secret // the version that key is of; nil before the first is opened
	key    *model.PrivateKey
	taken  bool                   // Sealed has returned record, and no answer has come yet
	users  map[*Subscriptions]int // number of resources of each that need the key
}

// keys maps Secrets to their needed private keys.
type keys map[model.Key]*opened

// need records that a resource of an identity needs the private key of a record. It returns the key, or nil if it is
// not opened yet.
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

// drop ends one need of a key. tidy then removes keys that nothing needs.
func (k keys) drop(key model.Key, subs *Subscriptions) {
	o := k[key]
	if o == nil {
		return
	}
	if o.users[subs]--; o.users[subs] <= 0 {
		delete(o.users, subs)
	}
}

// tidy removes the keys that nothing needs.
func (k keys) tidy() {
	maps.DeleteFunc(k, func(_ model.Key, o *opened) bool { return len(o.users) == 0 })
}

// Sealed returns the records whose private keys have to be opened, each once. The caller opens them and calls Opened or
// Unopened for each.
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

// Opened stores the private key of a record, and plans the Secrets that need it. It returns the subscriptions that were
// planned. A key that is not needed any more is dropped.
func (t *Table) Opened(record *model.Secret, key model.PrivateKey) (planned []*Subscriptions) {
	o := t.keys[record.Key]
	if o == nil || o.record != record {
		return nil
	}
	o.of, o.key = record, &key
	for subs := range maps.Clone(o.users) { // cloned, because planning changes the users
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

// Unopened reports that a record could not be opened, so that Sealed returns it again. The result is false if its key
// is not needed any more.
func (t *Table) Unopened(record *model.Secret) bool {
	o := t.keys[record.Key]
	if o == nil || o.record != record {
		return false
	}
	o.taken = false
	return true
}

// Pending lists the Secrets that a proxy subscribes to and whose private keys are not opened yet.
func (t *Table) Pending(subs *Subscriptions, of *Names) (pending []model.Key) {
	for name := range of.names {
		if t.opening(subs, name) {
			pending = append(pending, subs.names[name].needs)
		}
	}
	return pending
}

// opening reports whether the private key of a subscription's Secret, in its newest version, is not opened yet.
func (t *Table) opening(subs *Subscriptions, name string) bool {
	o := t.keys[subs.names[name].needs]
	return o != nil && o.of != o.record
}

// Inherit copies the private keys that another table has opened for the namespaces of this table's identities.
func (t *Table) Inherit(old *Table) {
	for who := range t.identities {
		for key, o := range old.keys {
			if key.Namespace == who.Namespace && t.keys[key] == nil {
				t.keys[key] = &opened{record: o.record, of: o.of, key: o.key, taken: o.taken}
			}
		}
	}
}
