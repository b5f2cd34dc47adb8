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

// Copy is what an identity subscribes to, its right, and what is opened for it: what a plan from scratch needs beside the snapshot. It
// may be used in any goroutine.
type Copy struct {
	Who   view.Identity
	Right access.Standing
	names []string
	keys  map[model.Key]opened // without their users
}

// Copy copies the subscriptions of an identity.
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

// Fresh plans the subscriptions from scratch, and modules of WasmPlugins and TrafficExtensions.
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
