package vhost

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Effective returns the patches that change the virtual host or its routes, in order of application; nil without such
// patches. It builds the virtual host up to twice for each patch. The caller owns the slice.
func (s Spec) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(some intern.List[model.Patch]) (string, error) {
		s.Patches = some
		return versionOf(s.Fragment())
	})
}

// Effective returns the patches that change the virtual host or its routes, in order of application; nil without such
// patches. It builds the virtual host up to twice for each patch. The caller owns the slice.
func (s CatchAll) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(some intern.List[model.Patch]) (string, error) {
		s.Patches = some
		return versionOf(s.Fragment())
	})
}

// Effective returns the patch that adds the virtual host, also if its value is invalid.
func (s Added) Effective() []model.Patch { return []model.Patch{s.Patch} }

// versionOf returns the hash of a fragment as a string, or err.
func versionOf(f *xds.Fragment, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return string(f.Hash[:]), nil
}

// Patched reports whether the Spec has patches, which may match the virtual host or its routes.
func (s Spec) Patched() bool { return s.Patches.Len() > 0 }

// Problems returns an error for each patch that Fragment leaves out; nil if the virtual host cannot be built even
// without patches. The function Problems of this package lists the rules of a VirtualService that Fragment leaves out.
func (s Spec) Problems() []error {
	f, err := s.buildUnpatched(func() {})
	if err != nil {
		return nil
	}
	vh, err := decode(f)
	if err != nil {
		return nil
	}
	_, problems := patch.ApplyVirtualHost(vh, s.Patches.All())
	return problems
}

// Patched reports whether the Spec has patches, which may match the virtual host or its routes.
func (s CatchAll) Patched() bool { return s.Patches.Len() > 0 }

// Problems returns an error for each patch that Fragment leaves out.
func (s CatchAll) Problems() []error {
	_, problems := patch.ApplyVirtualHost(s.build(), s.Patches.All())
	return problems
}
