package sidecar

import (
	"navarch.io/navarch/push/plan/front"
	"navarch.io/navarch/push/plan/layer"
)

// patched is a Spec that says whether patches may change what is drawn of it.
type patched interface{ Patched() bool }

// Freeze implements front.Front: of all listeners, and of the route configurations that a listener asks for, as proxies have them that are of no
// variation.
func (f *Front) Freeze() front.Frozen {
	var tails []tailSpec
	var heads []any
	var entries []layer.Table[entry]
	for _, rc := range f.routes.table {
		if rc.users > 0 {
			heads, tails, entries = append(heads, rc.Spec), append(tails, rc.tail...), append(entries, rc.entries.Fork())
		}
	}
	listeners := f.listeners.table.Fork()
	return func(found func(spec any)) {
		look := func(spec any) {
			if p, is := spec.(patched); is && p.Patched() {
				found(spec)
			}
		}
		for _, l := range listeners.All() {
			look(l.Spec)
		}
		for _, head := range heads {
			look(head)
		}
		for _, tail := range tails {
			look(tail.spec)
		}
		for _, table := range entries {
			for _, en := range table.All() {
				if en.frag != nil && en.spec.Patched() {
					found(en.spec)
				}
			}
		}
	}
}
