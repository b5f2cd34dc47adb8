package listener

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Effective is the patches that change the listener.
func (o Outbound) Effective() []model.Patch {
	return effective(&o.Common, func() (*xds.Resource, error) { return o.Build() })
}

// Effective is the patches that change the listener.
func (v VirtualOutbound) Effective() []model.Patch {
	return effective(&v.Common, func() (*xds.Resource, error) { return v.Build() })
}

// Effective is the patches that change the listener, or the routes within it.
func (v VirtualInbound) Effective() []model.Patch {
	return effective(&v.Common, func() (*xds.Resource, error) { return v.Build() })
}

// Effective is the patches that change the listener, or the routes within it.
func (i Ingress) Effective() []model.Patch {
	return effective(&i.Common, func() (*xds.Resource, error) { return i.Build() })
}

// Effective is the patch that adds the listener.
func (a Added) Effective() []model.Patch { return []model.Patch{a.Patch} }

// effective draws a listener whose Common is c, which nobody else has, with some of its patches.
func effective(c *Common, build func() (*xds.Resource, error)) []model.Patch {
	return patch.Effective(c.Patches, func(some intern.List[model.Patch]) (string, error) {
		c.Patches = some
		return patch.VersionOf(build())
	})
}

// Patched says whether there are patches that may match the listener, or the routes within it.
func (c Common) Patched() bool { return c.Patches.Len() > 0 }

// Problems are the patches that the listener is drawn without. Of what makes it none at all Build tells.
func (o Outbound) Problems() []error {
	_, problems, _ := o.draw()
	return problems
}

// Problems are the patches that the listener is drawn without. Of what makes it none at all Build tells.
func (v VirtualOutbound) Problems() []error {
	_, problems, _ := v.draw()
	return problems
}

// Problems are the patches that the listener, or the routes within it, are drawn without. Of what makes it none at all Build tells.
func (v VirtualInbound) Problems() []error {
	_, problems, _ := v.draw()
	return problems
}

// Problems are the patches that the listener, or the routes within it, are drawn without. Of what makes it none at all Build tells.
func (i Ingress) Problems() []error {
	_, problems, _ := i.draw()
	return problems
}
