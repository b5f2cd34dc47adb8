package listener

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/store/model"
)

// Effective returns the patches that change the listener, in order of application.
func (o Outbound) Effective() []model.Patch {
	return patch.Effective(o.Patches, func(t *patch.Trace) {
		o.trace = t
		_, _, _ = o.build()
	})
}

// Effective returns the patches that change the listener, in order of application.
func (v VirtualOutbound) Effective() []model.Patch {
	return patch.Effective(v.Patches, func(t *patch.Trace) {
		v.trace = t
		_, _, _ = v.build()
	})
}

// Effective returns the patches that change the listener or the routes inside it, in order of application.
func (v VirtualInbound) Effective() []model.Patch {
	return patch.Effective(v.Patches, func(t *patch.Trace) {
		v.trace = t
		_, _, _ = v.build()
	})
}

// Effective returns the patches that change the listener or the routes inside it, in order of application.
func (i Ingress) Effective() []model.Patch {
	return patch.Effective(i.Patches, func(t *patch.Trace) {
		i.trace = t
		_, _, _ = i.build()
	})
}

// Effective returns the patches that change the listener, in order of application.
func (s Servers) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(t *patch.Trace) {
		s.trace = t
		_, _, _ = s.build()
	})
}

// Effective returns the patch that adds the listener, always.
func (a Added) Effective() []model.Patch { return []model.Patch{a.Patch} }

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
