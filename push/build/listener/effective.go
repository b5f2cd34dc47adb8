package listener

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Effective returns the patches that change the listener, in order of application.
func (o Outbound) Effective() []model.Patch {
	return effectivePatches(&o.Common, func() (*xds.Resource, error) { return o.Build() })
}

// Effective returns the patches that change the listener, in order of application.
func (v VirtualOutbound) Effective() []model.Patch {
	return effectivePatches(&v.Common, func() (*xds.Resource, error) { return v.Build() })
}

// Effective returns the patches that change the listener or the routes inside it, in order of application.
func (v VirtualInbound) Effective() []model.Patch {
	return effectivePatches(&v.Common, func() (*xds.Resource, error) { return v.Build() })
}

// Effective returns the patches that change the listener or the routes inside it, in order of application.
func (i Ingress) Effective() []model.Patch {
	return effectivePatches(&i.Common, func() (*xds.Resource, error) { return i.Build() })
}

// Effective returns the patches that change the listener, in order of application.
func (s Servers) Effective() []model.Patch {
	return effectivePatches(&s.Common, func() (*xds.Resource, error) { return s.Build() })
}

// Effective returns the patch that adds the listener, always.
func (a Added) Effective() []model.Patch { return []model.Patch{a.Patch} }

// effectivePatches returns the patches of c that change the listener. build encodes the listener from c.
// effectivePatches sets different patches in c before each call of build, so c must be a copy that only the caller
// uses.
func effectivePatches(c *Common, build func() (*xds.Resource, error)) []model.Patch {
	return patch.Effective(c.Patches, func(some intern.List[model.Patch]) (string, error) {
		c.Patches = some
		return patch.VersionOf(build())
	})
}

// Patched reports whether the Spec has patches. These may match the listener or the routes inside it, and may have no
// effect.
func (c Common) Patched() bool { return c.Patches.Len() > 0 }

// Problems returns an error for each patch that Build leaves out (patch.Left), and for each patch that states a
// different name for the listener (a model.Problem); Build keeps the original name. The error of Build is not in the
// list.
func (o Outbound) Problems() []error {
	_, problems, _ := o.build()
	return problems
}

// Problems returns an error for each patch that Build leaves out (patch.Left), and for each patch that states a
// different name for the listener (a model.Problem); Build keeps the original name. The error of Build is not in the
// list.
func (v VirtualOutbound) Problems() []error {
	_, problems, _ := v.build()
	return problems
}

// Problems returns an error for each patch that Build leaves out of the listener or of the routes inside it
// (patch.Left), and for each patch that states a different name (a model.Problem); Build keeps the original names.
// The error of Build is not in the list.
func (v VirtualInbound) Problems() []error {
	_, problems, _ := v.build()
	return problems
}

// Problems returns an error for each patch that Build leaves out of the listener or of the routes inside it
// (patch.Left), and for each patch that states a different name (a model.Problem); Build keeps the original names.
// The error of Build is not in the list.
func (i Ingress) Problems() []error {
	_, problems, _ := i.build()
	return problems
}

// Problems returns an error for each patch that Build leaves out (patch.Left), and for each patch that states a
// different name for the listener (a model.Problem); Build keeps the original name. The error of Build is not in the
// list.
func (s Servers) Problems() []error {
	_, problems, _ := s.build()
	return problems
}
