package inbound

import (
	"iter"

	built "navarch.io/navarch/push/build/extension"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

var filters intern.Table[extension.Filter]

// Unrun names an extension that selects the proxies of a workload and that these proxies cannot run.
type Unrun struct {
	Extension *model.TrafficExtension
	Closed    bool   // true: the proxies' traffic is refused; false: the traffic passes without the extension
	Proxies   string // describes the proxies and what they lack, for messages
}

// planExtensions plans the filter configurations that the proxy requests by name, for both sides. EnvoyFilters,
// WasmPlugins and TrafficExtensions add such configurations. It also sets the filters of inbound listeners, and the
// extensions that the proxies cannot run.
func (wl *Workload) planExtensions() {
	for u := range wl.in.AddedExtensions(wl.patches, &wl.found) {
		wl.Reserve(u)
	}
	for e, use := range wl.used() {
		if !use.Way.Runs() {
			wl.unrun = append(wl.unrun, Unrun{e, use.Way == extension.Closed, use.Why})
			continue
		}
		wl.plan(built.Config{Extension: e, ByAgent: use.Way == extension.ByAgent})
	}
	wl.filters = wl.filtersOf(extension.Inbound)
}

// used returns an iterator over the extensions that the workload's key names.
func (wl *Workload) used() iter.Seq2[*model.TrafficExtension, view.Extension] {
	return func(yield func(*model.TrafficExtension, view.Extension) bool) {
		for _, use := range wl.key.Extensions.All() {
			r, ok := wl.in.Get(use.Key)
			if !ok {
				continue // the view is outdated, and its proxies are about to leave it
			}
			if !yield(r.(*model.TrafficExtension), use) {
				return
			}
		}
	}
}

// filtersOf returns the filters of the workload's extensions for the listeners of one side.
func (wl *Workload) filtersOf(side extension.Side) intern.List[extension.Filter] {
	var out []extension.Filter
	for e, use := range wl.used() {
		if f, is := extension.FilterOf(e, use.Way, side); is {
			out = append(out, f)
		}
	}
	return filters.List(out...)
}

// Unrun returns the extensions that the proxies of the workload cannot run, in order of application. The result is nil
// if the proxies run all extensions. The caller must not change the list.
func (wl *Workload) Unrun() []Unrun { return wl.unrun }
