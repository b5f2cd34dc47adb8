package vhost

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/store/model"
)

// Effective returns the patches that change the virtual host or its routes, in the order of Spec.Patches. It returns
// nil if there are no such patches, or if the virtual host cannot be built even without patches. It builds the virtual
// host once. The caller owns the slice.
func (s Spec) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(t *patch.Trace) { s.patched(t) })
}

// patched applies the patches to the virtual host, and returns the results of patch.ApplyVirtualHost. Both results are
// nil if the virtual host cannot be built even without patches. The Trace t records the patches that change the virtual
// host.
func (s Spec) patched(t *patch.Trace) (*routev3.VirtualHost, []error) {
	f, err := s.buildUnpatched(func() {})
	if err != nil {
		return nil, nil
	}
	vh, err := decode(f)
	if err != nil {
		return nil, nil
	}
	return t.ApplyVirtualHost(vh, s.Patches.All())
}

// Effective returns the patches that change the virtual host or its routes, in the order of CatchAll.Patches. It
// returns nil if there are no such patches. The caller owns the slice.
func (s CatchAll) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(t *patch.Trace) { t.ApplyVirtualHost(s.build(), s.Patches.All()) })
}

// Effective returns the patch that adds the virtual host, even if the patch's value is invalid.
func (s Added) Effective() []model.Patch { return []model.Patch{s.Patch} }

// Patched reports whether the Spec has patches. The patches need not match the virtual host or its routes.
func (s Spec) Patched() bool { return s.Patches.Len() > 0 }

// Problems returns at least one error (patch.Left) for each patch that Fragment leaves out: one for each route, if the
// patch is left out of several routes. It returns nil if there are no such patches, or if the virtual host cannot be
// built even without patches. Fragment also leaves out some matches in rules of VirtualServices. The package's function
// Problems returns the errors of these matches.
func (s Spec) Problems() []error {
	_, problems := s.patched(nil)
	return problems
}

// Patched reports whether the CatchAll has patches. The patches need not match the virtual host or its routes.
func (s CatchAll) Patched() bool { return s.Patches.Len() > 0 }

// Problems returns at least one error (patch.Left) for each patch that Fragment leaves out: one for each route, if the
// patch is left out of several routes. It returns nil if there are no such patches.
func (s CatchAll) Problems() []error {
	_, problems := patch.ApplyVirtualHost(s.build(), s.Patches.All())
	return problems
}
