package secret

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Copy contains the subscribed names of one identity (a service account), its right to private keys, and the private
// keys and credentials that its resources need. The method Fresh plans these resources from scratch. A Copy is safe for
// concurrent use.
type Copy struct {
	Who   view.Identity
	Right access.Standing // the right to private keys
	names []string
	keys  map[model.Key]opened // without their users
}

// Copy copies the subscriptions of an identity. For an unknown identity the result has no names and no keys, and Right
// is zero.
func (t *Table) Copy(who view.Identity) Copy {
	out := Copy{Who: who, keys: map[model.Key]opened{}}
	if subs := t.identities[who]; subs != nil {
		out.Right, out.names = subs.right, slices.Sorted(maps.Keys(subs.names))
		for key, o := range t.keys {
			if o.users[subs] > 0 {
				out.keys[key] = opened{record: o.record, of: o.of, key: o.key}
			}
		}
	}
	return out
}

// Fresh plans the copied subscriptions from scratch. The result secrets contains the Secrets of these subscriptions.
// The parameter modules lists keys of WasmPlugins and TrafficExtensions. The result extensions contains those of their
// configurations that have credentials. An empty manifest may be nil. Fresh does not change c.
func (c Copy) Fresh(in *input.Input, modules []model.Key) (secrets, extensions *manifest.Manifest) {
	t := New(in)
	subs := t.Of(c.Who)
	subs.right = c.Right
	for key, o := range c.keys {
		t.keys[key] = &o
	}
	for _, name := range c.names {
		subs.names[name] = &subscription{}
	}
	subs.plan(in, c.names, t.keys)
	t.Use(subs, modules)
	return subs.manifest, subs.Modules(modules, nil)
}
