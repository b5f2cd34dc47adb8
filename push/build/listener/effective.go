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

// Effective lists the patches that change the listener.
func (s Servers) Effective() []model.Patch {
	return effectivePatches(&s.Common, func() (*xds.Resource, error) { return s.Build() })
}

// Effective is the patch that adds the listener.
func (a Added) Effective() []model.Patch { return []model.Patch{a.Patch} }

// effectivePatches returns the patches of c that change the listener. build encodes the listener from c; the caller
// owns c, because each build sets other patches in it.
func effectivePatches(c *Common, build func() (*xds.Resource, error)) []model.Patch {
	return patch.Effective(c.Patches, func(some intern.List[model.Patch]) (string, error) {
		c.Patches = some
		return patch.VersionOf(build())
	})
}

// Patched reports whether some patch may match the listener or the routes inside it.
func (c Common) Patched() bool { return c.Patches.Len() > 0 }

// Problems lists the patches that Build leaves out of the listener, each a patch.Left or a model.Problem of its field.
// Faults of the Spec itself are errors of Build.
func (o Outbound) Problems() []error {
	_, problems, _ := o.build()
	return problems
}

// Problems lists the patches that Build leaves out of the listener, each a patch.Left or a model.Problem of its field.
// Faults of the Spec itself are errors of Build.
func (v VirtualOutbound) Problems() []error {
	_, problems, _ := v.build()
	return problems
}

// Problems lists the patches that Build leaves out of the listener or the routes inside it, each a patch.Left or a
// model.Problem of its field. Faults of the Spec itself are errors of Build.
func (v VirtualInbound) Problems() []error {
	_, problems, _ := v.build()
	return problems
}

// Problems lists the patches that Build leaves out of the listener or the routes inside it, each a patch.Left or a
// model.Problem of its field. Faults of the Spec itself are errors of Build.
func (i Ingress) Problems() []error {
	_, problems, _ := i.build()
	return problems
}

// Problems lists the patches that the listener is drawn without. Build reports the errors that leave no listener.
func (s Servers) Problems() []error {
	_, problems, _ := s.draw()
	return problems
}
