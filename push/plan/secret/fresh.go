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

// Copy is what an identity subscribes to, its right, and what is opened for it: what a plan from nothing needs beside the snapshot. It
// may be used in any goroutine.
type Copy struct {
	Who   view.Identity
	Right access.Standing
	names []string
	keys  map[model.Key]opened
}

// Copy copies the subscriptions of an identity.
func (t *Table) Copy(who view.Identity) Copy {
	out := Copy{Who: who, keys: map[model.Key]opened{}}
	if subs := t.identities[who]; subs != nil {
		out.Right, out.names = subs.right, slices.Sorted(maps.Keys(subs.names))
		for _, s := range subs.names {
			if o := t.keys[s.needs]; o != nil {
				out.keys[s.needs] = *o
			}
		}
	}
	return out
}

// Fresh plans the subscriptions from nothing.
func (c Copy) Fresh(in *input.Input) *manifest.Manifest {
	subs := &Subscriptions{who: c.Who, right: c.Right, names: map[string]*subscription{}}
	keys := map[model.Key]*opened{}
	for key, o := range c.keys {
		keys[key] = &o
	}
	for _, name := range c.names {
		subs.names[name] = &subscription{}
	}
	subs.plan(in, c.names, keys)
	return subs.manifest
}
