package secret

import (
	"maps"
	"slices"

	"navarch.io/navarch/store/model"
)

// opened is the private key of one Secret that some resource needs. The key may be unopened, which means that it is not
// decrypted yet.
type opened struct {
	record *model.Secret // the version of the Secret whose key is needed
	of     *model.Secret // the version to which key belongs; nil before the first key is opened
	key    *model.PrivateKey
	taken  bool                   // Sealed has returned record; false again after Unopened
	users  map[*Subscriptions]int // the number of resources that need the key, by identity
}

// keys maps Secrets to their needed private keys.
type keys map[model.Key]*opened

// need records that a resource of an identity needs the private key of a Secret. It returns the key, or nil if the key
// of this version of the Secret is not opened yet.
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

// drop records that one resource of an identity does not need a key any more. The method tidy removes the keys that no
// resource needs.
func (k keys) drop(key model.Key, subs *Subscriptions) {
	o := k[key]
	if o == nil {
		return
	}
	if o.users[subs]--; o.users[subs] <= 0 {
		delete(o.users, subs)
	}
}

// tidy removes the keys that no resource needs.
func (k keys) tidy() {
	maps.DeleteFunc(k, func(_ model.Key, o *opened) bool { return len(o.users) == 0 })
}

// Sealed returns the records whose encrypted private keys or credentials have to be opened (decrypted), sorted by key.
// The result is nil if there is no such record. The caller opens each key, and calls Opened or, after a failure,
// Unopened. While the record stays the same and its key is needed, Sealed returns it again only after Unopened.
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

// Opened stores the decrypted private key of a record, and plans the Secrets and modules that need the key. It returns
// the planned subscriptions, in no order. If no resource needs the key of this version of the record any more, the key
// is discarded and the result is nil.
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

// Unopened makes Sealed return a record again, after the private key could not be opened. If no resource needs the key
// of this version of the record any more, Unopened does nothing and returns false.
func (t *Table) Unopened(record *model.Secret) bool {
	o := t.keys[record.Key]
	if o == nil || o.record != record {
		return false
	}
	o.taken = false
	return true
}

// Pending returns the record keys of the Secrets that a proxy waits for. A proxy waits for a Secret that it subscribes
// to while the private key of the Secret's newest version is not opened. The result has no order, may contain a key
// repeatedly, and is nil if it is empty. The parameter subs has the subscriptions of the proxy's identity. The
// parameter wanted has the names that the proxy subscribes to.
func (t *Table) Pending(subs *Subscriptions, wanted *Names) (pending []model.Key) {
	for name := range wanted.names {
		if t.opening(subs, name) {
			pending = append(pending, subs.names[name].needs)
		}
	}
	return pending
}

// opening reports whether a subscribed name needs a private key whose newest version is not opened yet.
func (t *Table) opening(subs *Subscriptions, name string) bool {
	o := t.keys[subs.names[name].needs]
	return o != nil && o.of != o.record
}

// Inherit copies to t the private keys, opened or not, that only the table old has. Only keys in the namespaces of t's
// identities are copied. At its next change, t drops the copied keys that no resource of t needs. The table old is not
// changed.
func (t *Table) Inherit(old *Table) {
	for who := range t.identities {
		for key, o := range old.keys {
			if key.Namespace == who.Namespace && t.keys[key] == nil {
				t.keys[key] = &opened{record: o.record, of: o.of, key: o.key, taken: o.taken}
			}
		}
	}
}
