package vhost

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Effective is the patches that change the virtual host, or its routes.
func (s Spec) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(some intern.List[model.Patch]) (string, error) {
		s.Patches = some
		return versionOf(s.Fragment())
	})
}

// Effective is the patches that change the virtual host, or its routes.
func (s CatchAll) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(some intern.List[model.Patch]) (string, error) {
		s.Patches = some
		return versionOf(s.Fragment())
	})
}

// Effective is the patch that adds the virtual host.
func (s Added) Effective() []model.Patch { return []model.Patch{s.Patch} }

func versionOf(f *xds.Fragment, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return string(f.Hash[:]), nil
}

// Patched says whether there are patches that may match the virtual host.
func (s Spec) Patched() bool { return s.Patches.Len() > 0 }

// Problems are the patches that the virtual host, or its routes, are drawn without. The function Problems has the
// rules of a VirtualService that are left out.
func (s Spec) Problems() []error {
	f, err := s.unpatched()
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

// Patched says whether there are patches that may match the virtual host.
func (s CatchAll) Patched() bool { return s.Patches.Len() > 0 }

// Problems are the patches that the virtual host, or its routes, are drawn without.
func (s CatchAll) Problems() []error {
	_, problems := patch.ApplyVirtualHost(s.draw(), s.Patches.All())
	return problems
}
