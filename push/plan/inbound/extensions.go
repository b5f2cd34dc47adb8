package inbound

import (
	built "navarch.io/navarch/push/build/extension"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

var filters intern.Table[extension.Filter]

// Unrun is an extension that proxies of a workload cannot run.
type Unrun struct {
	Extension *model.TrafficExtension
	Closed    bool   // their traffic is refused; else it passes without
	Proxies   string // which they are
}

// planExtensions plans the configurations of filters that the proxy asks for by name, of both sides: those that EnvoyFilters add, and those of
// WasmPlugins and TrafficExtensions. What of these is in its inbound listeners follows too.
func (wl *Workload) planExtensions() {
	for u := range wl.in.AddedExtensions(wl.patches, &wl.found) {
		wl.Reserve(u)
	}
	var inbound []extension.Filter
	for _, use := range wl.key.Extensions.All() {
		r, ok := wl.in.Get(use.Key)
		if !ok {
			continue // of a view that its proxies are about to leave
		}
		e := r.(*model.TrafficExtension)
		if f, is := extension.FilterOf(e, use.Way, extension.Inbound); is {
			inbound = append(inbound, f)
		}
		if !use.Way.Runs() {
			wl.unrun = append(wl.unrun, Unrun{e, use.Way == extension.Closed, use.Why})
			continue
		}
		wl.plan(built.Config{Extension: e, ByAgent: use.Way == extension.ByAgent})
	}
	wl.filters = filters.List(inbound...)
}

// Unrun are the extensions that proxies of the workload cannot run.
func (wl *Workload) Unrun() []Unrun { return wl.unrun }
