package listener

import (
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/store/model"
)

// Effective returns the patches that change the listener, in the order of their application. It returns nil if there
// are no such patches.
func (o Outbound) Effective() []model.Patch {
	return patch.Effective(o.Patches, func(t *patch.Trace) {
		o.trace = t
		_, _, _ = o.build()
	})
}

// Effective returns the patches that change the listener, in the order of their application. It returns nil if there
// are no such patches.
func (v VirtualOutbound) Effective() []model.Patch {
	return patch.Effective(v.Patches, func(t *patch.Trace) {
		v.trace = t
		_, _, _ = v.build()
	})
}

// Effective returns the patches that change the listener or the routes inside it, in order of application. It returns
// nil if there are no such patches.
func (v VirtualInbound) Effective() []model.Patch {
	return patch.Effective(v.Patches, func(t *patch.Trace) {
		v.trace = t
		_, _, _ = v.build()
	})
}

// Effective returns the patches that change the listener or the routes inside it, in order of application. It returns
// nil if there are no such patches.
func (i Ingress) Effective() []model.Patch {
	return patch.Effective(i.Patches, func(t *patch.Trace) {
		i.trace = t
		_, _, _ = i.build()
	})
}

// Effective returns the patches that change the listener, in the order of their application. It returns nil if there
// are no such patches.
func (s Servers) Effective() []model.Patch {
	return patch.Effective(s.Patches, func(t *patch.Trace) {
		s.trace = t
		_, _, _ = s.build()
	})
}

// Effective returns the patch that adds the listener, even if Build fails.
func (a Added) Effective() []model.Patch { return []model.Patch{a.Patch} }

// Patched reports whether Patches is not empty. It does not report whether a patch has an effect on the listener.
func (c Common) Patched() bool { return c.Patches.Len() > 0 }

// Problems returns an error for each patch that Build leaves out (patch.Left). It also returns an error (a
// model.Problem) for each patch that states a different name for the listener, because Build keeps the original name.
// The list does not contain the error of Build. If Build fails because of Bind or Port, the list is nil.
func (o Outbound) Problems() []error {
	_, problems, _ := o.build()
	return problems
}

// Problems returns an error for each patch that Build leaves out (patch.Left). It also returns an error (a
// model.Problem) for each patch that states a different name for the listener, because Build keeps the original name.
// The list does not contain the error of Build. If Build fails because of Port, the list is nil.
func (v VirtualOutbound) Problems() []error {
	_, problems, _ := v.build()
	return problems
}

// Problems returns an error for each patch that Build leaves out of the listener or of the routes inside it
// (patch.Left). It also returns an error (a model.Problem) for each patch that states a different name, because Build
// keeps the original name. A patch that applies to the routes of several chains may have several errors. The list does
// not contain the error of Build. If Build fails because of Port, the list is nil.
func (v VirtualInbound) Problems() []error {
	_, problems, _ := v.build()
	return problems
}

// Problems returns an error for each patch that Build leaves out of the listener or of the routes inside it
// (patch.Left). It also returns an error (a model.Problem) for each patch that states a different name, because Build
// keeps the original name. A patch that applies to the routes of several chains may have several errors. The list does
// not contain the error of Build. If Build fails because of an address or the port, the list is nil.
func (i Ingress) Problems() []error {
	_, problems, _ := i.build()
	return problems
}

// Problems returns an error for each patch that Build leaves out (patch.Left). It also returns an error (a
// model.Problem) for each patch that states a different name for the listener, because Build keeps the original name.
// The list does not contain the error of Build. If Build fails, the list may lack errors of patches.
func (s Servers) Problems() []error {
	_, problems, _ := s.build()
	return problems
}
