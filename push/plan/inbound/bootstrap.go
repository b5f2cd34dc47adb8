package inbound

import (
	"fmt"

	"navarch.io/navarch/push/build/bootstrap"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// planBootstrap plans the changes that patches make to the proxy's bootstrap. Workloads with the same patches share
// one resource. If the proxy's agent does not request these changes, the patches have no effect, and planBootstrap
// adds a problem for each patch.
func (wl *Workload) planBootstrap() {
	own := wl.patches.Matching(patch.MergesBootstrap)
	if own.Len() == 0 {
		return
	}
	if !wl.key.Bootstrap {
		for _, p := range own.All() {
			wl.found = append(wl.found, input.Warning(p.Filter.Key, problem.NotSupported,
				fmt.Sprintf("spec.configPatches[%d].applyTo", p.Index),
				"BOOTSTRAP: has no effect on selected proxies whose agents do not request it; "+
					"navarch-agent requests it with BOOTSTRAP_XDS_AGENT, Istio's agents are not supported"))
		}
		return
	}
	r, err := wl.in.Pool.Resource(bootstrap.Patches{List: own})
	if err != nil {
		wl.found = append(wl.found, model.ProblemOf(err, own.All()[0].Filter.Key))
		return
	}
	wl.bootstrap = r
}

// Bootstrap returns the resource with the changes that patches make to the proxy's bootstrap. It is nil if no patch
// applies, if the proxy's agent does not request these changes, or if the build failed (see Problems).
func (wl *Workload) Bootstrap() *xds.Resource { return wl.bootstrap }
